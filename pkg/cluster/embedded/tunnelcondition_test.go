// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

// TestAgentProcesses checks that a node is reachable through the ready agents
// assumed to run on it, and that changes of the node are reported.
func TestAgentProcesses(t *testing.T) {
	var mu sync.Mutex
	ready := map[string]bool{"konnectivity-agent-2": true, "etcd": true}
	set := func(name string, to bool) {
		mu.Lock()
		defer mu.Unlock()
		ready[name] = to
	}
	agents := agentProcesses{
		nodes: map[string]string{"konnectivity-agent-0": "node-1", "konnectivity-agent-1": "node-2", "konnectivity-agent-2": "node-1"},
		status: func() (list []process.Status) {
			mu.Lock()
			defer mu.Unlock()
			for name, r := range ready {
				list = append(list, process.Status{Name: name, Ready: r})
			}
			return list
		},
	}
	want := func(node, agent string) {
		t.Helper()
		if got, err := agents.On(node); err != nil || got != agent {
			t.Errorf("on %s: %q, %v, want %q", node, got, err, agent)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changed := make(chan string, 10)
	if err := agents.Start(ctx, func(node string) { changed <- node }); err != nil {
		t.Fatal(err)
	}
	want("node-1", "konnectivity-agent-2")
	want("node-2", "")
	for _, step := range []struct {
		agent string
		ready bool
	}{{"konnectivity-agent-1", true}, {"konnectivity-agent-1", false}} {
		set(step.agent, step.ready)
		select {
		case node := <-changed:
			if node != "node-2" {
				t.Errorf("%s has changed, want node-2", node)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no report that %s is ready: %v", step.agent, step.ready)
		}
	}
	set("konnectivity-agent-0", true)
	want("node-1", "konnectivity-agent-0")
	want("node-2", "")
}
