// SPDX-License-Identifier: Apache-2.0

package foreignnominations

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/plugintest"
)

// meddler is a filter that does something in the middle of the plugin's: when a foreign pod is on the node.
type meddler struct{ do func() }

func (meddler) Name() string { return "Meddler" }

func (m meddler) Filter(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	if slices.ContainsFunc(node.GetPods(), func(p fwk.PodInfo) bool { return p.GetPod().Name == "foreign" }) {
		m.do()
		return fwk.NewStatus(fwk.Unschedulable, "meddled")
	}
	return nil
}

func foreignPod() *corev1.Pod {
	return st.MakePod().Name("foreign").Namespace("default").UID("foreign").SchedulerName("default-scheduler").Priority(10).NominatedNodeName("n").Obj()
}

// TestFreedMeanwhile: resources that are freed between the plugin's check and its result activate the pod.
func TestFreedMeanwhile(t *testing.T) {
	own := st.MakePod().Name("own").Namespace("default").UID("own").SchedulerName(plugintest.Profile).Obj()
	node := st.MakeNode().Name("n").Capacity(map[corev1.ResourceName]string{corev1.ResourceCPU: "4", corev1.ResourcePods: "10"}).Obj()
	m := &meddler{}
	c := plugintest.NewWith(t, []*corev1.Node{node}, nil, nil,
		plugintest.Plugin{Name: Name, Factory: New, Points: []string{"PreFilter", "Filter"}},
		plugintest.Plugin{Name: m.Name(), Points: []string{"Filter"}, Factory: func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return m, nil }})
	index := c.Plugin.(*Plugin).foreign
	m.do = func() { index.remove(foreignPod()) }
	index.update(foreignPod())
	if said, _ := c.Filter(t, own); said["n"] == "" {
		t.Fatal("the pod was not kept out: the test tests nothing")
	}
	if got := c.Activated(); !slices.Contains(got, "own") {
		t.Errorf("activated %v", got)
	}
}

// TestChangesThatFree: what a foreign pod gives back while it is nominated, and what it does not.
func TestChangesThatFree(t *testing.T) {
	cpu := func(p *corev1.Pod, v string) *corev1.Pod {
		return st.MakePod().Name(p.Name).Namespace(p.Namespace).UID(string(p.UID)).SchedulerName(p.Spec.SchedulerName).Priority(10).
			NominatedNodeName(p.Status.NominatedNodeName).Label("app", p.Labels["app"]).Req(map[corev1.ResourceName]string{corev1.ResourceCPU: v}).Obj()
	}
	for name, tc := range map[string]struct {
		change func(p *corev1.Pod) *corev1.Pod
		want   bool
	}{
		"shrinks":         {func(p *corev1.Pod) *corev1.Pod { return cpu(p, "1") }, true},
		"grows":           {func(p *corev1.Pod) *corev1.Pod { return cpu(p, "3") }, false},
		"other label":     {func(p *corev1.Pod) *corev1.Pod { p.Labels["app"] = "other"; return p }, true},
		"moves":           {func(p *corev1.Pod) *corev1.Pod { p.Status.NominatedNodeName = "m"; return p }, true},
		"gives up":        {func(p *corev1.Pod) *corev1.Pod { p.Status.NominatedNodeName = ""; return p }, true},
		"is bound":        {func(p *corev1.Pod) *corev1.Pod { p.Spec.NodeName = "n"; return p }, false},
		"bound elsewhere": {func(p *corev1.Pod) *corev1.Pod { p.Spec.NodeName = "m"; return p }, true},
		"a message":       {func(p *corev1.Pod) *corev1.Pod { p.Status.Message = "new"; return p }, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(sets.New[string]())
			released := 0
			x.onFreed = func(waiting map[string]*corev1.Pod) { released += len(waiting) }
			before := foreignPod()
			before.Labels = map[string]string{"app": "x"}
			before = cpu(before, "2")
			x.update(before)
			x.waits(st.MakePod().Name("own").Namespace("default").UID("own").Obj(), x.freed.Load())
			x.update(tc.change(before.DeepCopy()))
			if got := released > 0; got != tc.want {
				t.Errorf("released: %t, want %t", got, tc.want)
			}
		})
	}
}
