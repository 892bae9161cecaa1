// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestStop: after SIGTERM the server answers on until it is no endpoint any more, and open watches show what changes
// meanwhile. Then it ends them, and does not leave them open without events until it is killed.
func TestStop(t *testing.T) {
	t.Parallel()
	const limit = 40 * time.Second
	rig := tunneltest.NewRig(t, server.Config{ServerID: "one"})
	rig.StartAgent(agent.Config{AgentID: "a1"}, "")
	leaving := rig.StartAgent(agent.Config{AgentID: "Agent/Two"}, "")
	o := NewOptions()
	o.ShutdownDelay = 8 * time.Second // requests come in this time, on a busy machine, too
	ctx, terminate := context.WithCancel(context.Background())
	defer terminate()
	cfg, done := launchUntil(ctx, t, o, "unix://"+showState(t, rig))
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	agents := client.Resource(v1alpha1.SchemeGroupVersion.WithResource("tunnelagents"))
	tunneltest.Eventually(t, tunneltest.Patience, "two agents", func() bool {
		list, err := agents.List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 2
	})
	w := watching(t, agents)
	terminate()
	begin := time.Now()
	tunneltest.Eventually(t, o.ShutdownDelay, "the server is not ready", func() bool {
		_, err := get(cfg, "/readyz", "")
		return err != nil
	})
	if _, err := agents.Get(t.Context(), "a1", metav1.GetOptions{}); err != nil {
		t.Errorf("a request while the server is an endpoint: %v", err)
	}
	leaving.Stop()
	untilGone(t, w, watch.Added, watch.Modified)
	late := time.After(limit)
	for open := true; open; {
		select {
		case _, open = <-w.ResultChan():
		case <-late:
			t.Fatalf("the watch is open %v after SIGTERM", time.Since(begin))
		}
	}
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-late:
		t.Fatalf("the server runs %v after SIGTERM", time.Since(begin))
	}
	if took := time.Since(begin); took < o.ShutdownDelay {
		t.Errorf("the server stopped after %v: it was an endpoint", took)
	}
}
