// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestPagesOfReplicas: controllers get whole lists, although each page is of another replica, whichever of them is older.
func TestPagesOfReplicas(t *testing.T) {
	t.Parallel()
	const total = 4
	rig := tunneltest.NewRig(t, server.Config{ServerID: "one"})
	target := tunneltest.Target(t, tunneltest.Echo)
	for i := range total {
		rig.StartAgent(agent.Config{AgentID: fmt.Sprint("a", i)}, "")
	}
	for range total {
		c, err := tunneltest.Connect(rig.Connect)(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	url := "unix://" + showState(t, rig)
	var replicas []dynamic.Interface
	for range 2 {
		client, err := dynamic.NewForConfig(start(t, url))
		if err != nil {
			t.Fatal(err)
		}
		replicas = append(replicas, client)
	}
	for _, name := range []string{"tunnelagents", "tunnelconnections"} {
		resource := v1alpha1.SchemeGroupVersion.WithResource(name)
		for _, r := range replicas {
			tunneltest.Eventually(t, tunneltest.Patience, "all "+name, func() bool {
				list, err := r.Resource(resource).List(t.Context(), metav1.ListOptions{})
				return err == nil && len(list.Items) == total
			})
		}
		for first, which := range []string{"older", "newer"} {
			if n, err := pagesInTurn(t, replicas, first, resource); err != nil || n != total {
				t.Errorf("%s, the first page of the %s replica: %d of %d: %v", name, which, n, total, err)
			}
		}
	}
}

// pagesInTurn lists with one object a page, and asks the replicas in turn. It returns how many objects there are.
func pagesInTurn(t *testing.T, replicas []dynamic.Interface, first int, resource schema.GroupVersionResource) (int, error) {
	turn := first
	p := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		client := replicas[turn%len(replicas)]
		turn++
		return client.Resource(resource).List(ctx, opts)
	})
	p.PageSize = 1
	list, _, err := p.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	return meta.LenList(list), nil
}
