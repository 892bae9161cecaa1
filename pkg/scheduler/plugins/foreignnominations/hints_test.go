// SPDX-License-Identifier: Apache-2.0

package foreignnominations_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/foreignnominations"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/plugintest"
)

// TestActivate: a pod that was kept out is tried again when the nomination goes, and only then.
func TestActivate(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *plugintest.Cluster){
		"deleted": func(t *testing.T, c *plugintest.Cluster) {
			if err := c.Client.CoreV1().Pods("default").Delete(t.Context(), "foreign", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		"given up": func(t *testing.T, c *plugintest.Cluster) { update(t, c, foreign().NominatedNodeName("").Obj()) },
		"moved":    func(t *testing.T, c *plugintest.Cluster) { update(t, c, foreign().NominatedNodeName("m").Obj()) },
	} {
		t.Run(name, func(t *testing.T) {
			c := plugintest.New(t, foreignnominations.Name, foreignnominations.New, "", []*corev1.Node{node("n"), node("m")}, []*corev1.Pod{foreign().Obj()}, "PreFilter", "Filter")
			eventuallyKnown(t, c, foreign().Obj(), true)
			if said, _ := c.Filter(t, pod("pod", plugintest.Profile, 5).Obj()); said["n"] == "" {
				t.Fatal("the pod was not kept out")
			}
			if got := c.Activated(); len(got) > 0 {
				t.Fatalf("activated %v before anything changed", got)
			}
			end(t, c)
			plugintest.Eventually(t, "the pod to be activated", func() bool { return slices.Contains(c.Activated(), "pod") })
		})
	}
}

func update(t *testing.T, c *plugintest.Cluster, p *corev1.Pod) {
	t.Helper()
	if _, err := c.Client.CoreV1().Pods("default").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestQueueingHints: the plugin reacts to every change that some filter waits for, because the plugin is what rejected
// the pod. Pods without a node free no resources.
func TestQueueingHints(t *testing.T) {
	c := plugintest.New(t, foreignnominations.Name, foreignnominations.New, "", nil, nil, "PreFilter", "Filter")
	events, err := c.Plugin.(fwk.EnqueueExtensions).EventsToRegister(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	registered := map[fwk.EventResource]fwk.ActionType{}
	for _, e := range events {
		registered[e.Event.Resource] |= e.Event.ActionType
	}
	for resource, action := range map[fwk.EventResource]fwk.ActionType{
		fwk.Pod:                   fwk.Add | fwk.Delete | fwk.UpdatePodLabel | fwk.UpdatePodScaleDown,
		fwk.Node:                  fwk.Add | fwk.UpdateNodeAllocatable | fwk.UpdateNodeLabel,
		fwk.PersistentVolumeClaim: fwk.Add | fwk.Update,
	} {
		if registered[resource]&action != action {
			t.Errorf("%s: %b is registered, want %b", resource, registered[resource], action)
		}
	}
	on, own := foreign().NominatedNodeName("").Node("n").Obj(), pod("pod", plugintest.Profile, 5).Obj()
	for name, tc := range map[string]struct {
		old, new any
		want     fwk.QueueingHint
	}{
		"deleted, was nowhere":   {foreign().NominatedNodeName("").Obj(), nil, fwk.QueueSkip},
		"deleted, was nominated": {foreign().Obj(), nil, fwk.Queue},
		"deleted, was bound":     {on, nil, fwk.Queue},
		"bound":                  {nil, on, fwk.Queue},
		"bound one changes":      {on, on, fwk.Queue},
		"pending one changes":    {foreign().NominatedNodeName("").Obj(), foreign().NominatedNodeName("").Obj(), fwk.QueueSkip},
		"the pod itself changes": {own, own, fwk.Queue},
	} {
		if got, err := events[0].QueueingHintFn(klog.Background(), own, tc.old, tc.new); got != tc.want || err != nil {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
}

// TestSign: pods with different priorities see different free resources.
func TestSign(t *testing.T) {
	c := plugintest.New(t, foreignnominations.Name, foreignnominations.New, "", nil, nil, "PreFilter", "Filter")
	sign := func(priority int32) string {
		return string(c.Framework.SignPod(t.Context(), pod("pod", plugintest.Profile, priority).Obj()))
	}
	one, again, two := sign(1), sign(1), sign(2)
	if one == "" || one == two || one != again {
		t.Errorf("signatures %q, %q and %q", one, again, two)
	}
}
