// SPDX-License-Identifier: Apache-2.0

package politepreemption_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/plugintest"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/politepreemption"
)

func node(name string) *corev1.Node {
	return st.MakeNode().Name(name).Capacity(map[corev1.ResourceName]string{corev1.ResourceCPU: "1", corev1.ResourcePods: "10"}).Obj()
}

func pod(name, scheduler, node string, priority int32) *corev1.Pod {
	return st.MakePod().Name(name).Namespace("default").UID(name).SchedulerName(scheduler).Node(node).Priority(priority).
		Req(map[corev1.ResourceName]string{corev1.ResourceCPU: "1"}).Obj()
}

// TestPreemption: victims are the profile's own pods only, unless configured otherwise (kubernetes#130429).
func TestPreemption(t *testing.T) {
	const system = 2_000_000_000
	for name, tc := range map[string]struct {
		victim   string // scheduler of the pod in the way
		args     string
		priority int32
		want     bool
	}{
		"own pod":                        {plugintest.Profile, "", 10, true},
		"own pod of the same priority":   {plugintest.Profile, "", 1, false},
		"other scheduler's pod":          {"default-scheduler", "", 10, false},
		"no scheduler named":             {"", "", 10, false},
		"other scheduler's pod, allowed": {"default-scheduler", `{"evict": ["default-scheduler"]}`, 10, true},
		"no scheduler named, allowed":    {"", `{"evict": ["default-scheduler"]}`, 10, true},
		"a third scheduler's pod":        {"third", `{"evict": ["default-scheduler"]}`, 10, false},
		"any scheduler":                  {"third", `{"evict": ["*"]}`, 10, true},
		"system priority":                {"default-scheduler", "", system, true},
		"just below system priority":     {"default-scheduler", "", system - 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			preemptor := pod("preemptor", plugintest.Profile, "", tc.priority)
			c := plugintest.New(t, politepreemption.Name, politepreemption.New, tc.args, []*corev1.Node{node("n")},
				[]*corev1.Pod{pod("victim", tc.victim, "n", 1), preemptor}, "PostFilter")
			said, state := c.Filter(t, preemptor)
			if said["n"] == "" {
				t.Fatal("the pod fits without preemption: the test tests nothing")
			}
			statuses := framework.NewDefaultNodeToStatus()
			statuses.Set("n", fwk.NewStatus(fwk.Unschedulable, said["n"]))
			result, status := c.Framework.RunPostFilterPlugins(t.Context(), state, preemptor, statuses)
			if got := status.IsSuccess(); got != tc.want {
				t.Fatalf("preempts: %t, want %t: %s", got, tc.want, status.Message())
			}
			if tc.want && result.NominatedNodeName != "n" {
				t.Errorf("nominated %q", result.NominatedNodeName)
			}
		})
	}
}

// TestVictimsOnSharedNode: on a node with pods of both schedulers, the scheduler's own pod is evicted although the
// other pod has a lower priority.
func TestVictimsOnSharedNode(t *testing.T) {
	two := st.MakeNode().Name("n").Capacity(map[corev1.ResourceName]string{corev1.ResourceCPU: "2", corev1.ResourcePods: "10"}).Obj()
	preemptor := pod("preemptor", plugintest.Profile, "", 10)
	c := plugintest.New(t, politepreemption.Name, politepreemption.New, "", []*corev1.Node{two},
		[]*corev1.Pod{pod("foreign", "default-scheduler", "n", 0), pod("own", plugintest.Profile, "n", 5), preemptor}, "PostFilter")
	_, state := c.Filter(t, preemptor)
	info, err := c.Framework.SnapshotSharedLister().NodeInfos().Get("n")
	if err != nil {
		t.Fatal(err)
	}
	victims, _, status := c.Plugin.(*politepreemption.Plugin).SelectVictimsOnNode(t.Context(), state, preemptor, info.Snapshot(), nil)
	if !status.IsSuccess() || len(victims) != 1 || victims[0].Name != "own" {
		t.Errorf("victims %v, status %s", victims, status.Message())
	}
}

func TestNewRefuses(t *testing.T) {
	c := plugintest.New(t, politepreemption.Name, politepreemption.New, "", nil, nil, "PostFilter")
	if c.Plugin.Name() != "PolitePreemption" {
		t.Errorf("name %s", c.Plugin.Name())
	}
	if _, err := politepreemption.New(t.Context(), &runtime.Unknown{Raw: []byte(`{"spare": []}`)}, c.Framework); !errors.Is(err, pluginargs.ErrArgs) || !strings.Contains(err.Error(), "spare") {
		t.Errorf("unknown argument: %v", err)
	}
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		features.GenericWorkload: true, features.GangScheduling: true, features.WorkloadAwarePreemption: true,
	})
	if _, err := politepreemption.New(t.Context(), nil, c.Framework); !errors.Is(err, politepreemption.ErrWorkloadAware) {
		t.Errorf("preemption of pod groups: %v", err)
	}
}
