// SPDX-License-Identifier: Apache-2.0

package nomination_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/nomination"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/plugintest"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/politepreemption"
)

// holder rejects every pod before it looks at nodes.
type holder struct{ keep bool }

func (holder) Name() string { return "Holder" }

func (h holder) PreFilter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if h.keep {
		nomination.Keep(state)
	}
	return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "not yet")
}

func (holder) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// TestKeep: preemption gives up the nomination of a pod that PreFilter rejects, unless it is kept.
func TestKeep(t *testing.T) {
	for name, tc := range map[string]holder{"kept": {true}, "given up": {false}} {
		t.Run(name, func(t *testing.T) {
			node := st.MakeNode().Name("n").Capacity(map[corev1.ResourceName]string{corev1.ResourceCPU: "1", corev1.ResourcePods: "10"}).Obj()
			pod := st.MakePod().Name("pod").Namespace("default").UID("pod").SchedulerName(plugintest.Profile).Priority(10).NominatedNodeName("n").Obj()
			c := plugintest.NewWith(t, []*corev1.Node{node}, []*corev1.Pod{pod}, nil,
				plugintest.Plugin{Name: politepreemption.Name, Factory: politepreemption.New, Points: []string{"PostFilter"}},
				plugintest.Plugin{Name: tc.Name(), Points: []string{"PreFilter"}, Factory: func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return tc, nil }})
			state := framework.NewCycleState()
			_, status, _ := c.Framework.RunPreFilterPlugins(t.Context(), state, pod)
			statuses := framework.NewDefaultNodeToStatus()
			statuses.SetAbsentNodesStatus(status)
			result, _ := c.Framework.RunPostFilterPlugins(t.Context(), state, pod, statuses)
			if kept := result == nil || result.Mode() == fwk.ModeNoop; kept != tc.keep {
				t.Errorf("the nomination is kept: %t, want %t", kept, tc.keep)
			}
		})
	}
}
