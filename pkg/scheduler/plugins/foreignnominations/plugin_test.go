// SPDX-License-Identifier: Apache-2.0

package foreignnominations_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/foreignnominations"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/plugintest"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/politepreemption"
)

func node(name string) *corev1.Node {
	return st.MakeNode().Name(name).Capacity(map[corev1.ResourceName]string{corev1.ResourceCPU: "4", corev1.ResourcePods: "10"}).Obj()
}

func pod(name, scheduler string, priority int32) *st.PodWrapper {
	return st.MakePod().Name(name).Namespace("default").UID(name).SchedulerName(scheduler).Priority(priority).
		Req(map[corev1.ResourceName]string{corev1.ResourceCPU: "3"})
}

func foreign() *st.PodWrapper { return pod("foreign", "default-scheduler", 10).NominatedNodeName("n") }

func TestFilter(t *testing.T) {
	const taken = "room that another scheduler has nominated"
	for name, tc := range map[string]struct {
		foreign *corev1.Pod
		args    string
		want    string
	}{
		"nominated":                     {foreign().Obj(), "", taken},
		"nominated with equal priority": {foreign().Priority(5).Obj(), "", taken},
		"nominated with lower priority": {foreign().Priority(4).Obj(), "", ""},
		"nominated elsewhere":           {foreign().NominatedNodeName("m").Obj(), "", ""},
		"not nominated":                 {foreign().NominatedNodeName("").Obj(), "", ""},
		"ignored scheduler":             {foreign().Obj(), `{"ignore": ["default-scheduler"]}`, ""},
		"small enough":                  {foreign().Containers(nil).Req(map[corev1.ResourceName]string{corev1.ResourceCPU: "1"}).Obj(), "", ""},
		"ended":                         {foreign().Phase(corev1.PodFailed).Obj(), "", ""},
		"on its way out":                {foreign().Terminating().Obj(), "", ""},
		// The scheduler's own nominator counts it: twice would be too much (see TestOwnNominations).
		"own profile": {pod("own", plugintest.Profile, 10).NominatedNodeName("n").Obj(), "", ""},
		"bound":       {foreign().Node("n").Obj(), "", "Insufficient cpu"},
	} {
		t.Run(name, func(t *testing.T) {
			c := plugintest.New(t, foreignnominations.Name, foreignnominations.New, tc.args, []*corev1.Node{node("n"), node("m")}, []*corev1.Pod{tc.foreign}, "PreFilter", "Filter")
			f := tc.foreign
			hidden := tc.args != "" || f.Status.Phase == corev1.PodFailed || f.DeletionTimestamp != nil || f.Spec.SchedulerName == plugintest.Profile
			eventuallyKnown(t, c, f, !hidden)
			said, _ := c.Filter(t, pod("pod", plugintest.Profile, 5).Obj())
			if got := said["n"]; (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("node n says %q, want %q", got, tc.want)
			}
		})
	}
}

// eventuallyKnown waits for the plugin's handler of pods: syncing the informer does not. A nomination that never counts
// gets a moment.
func eventuallyKnown(t *testing.T, c *plugintest.Cluster, p *corev1.Pod, counts bool) {
	t.Helper()
	if p.Status.NominatedNodeName == "" || p.Spec.NodeName != "" {
		return
	}
	big := pod("big", plugintest.Profile, -1000).Containers(nil).Req(map[corev1.ResourceName]string{corev1.ResourceCPU: "4"}).Obj()
	known := func() bool { said, _ := c.Filter(t, big); return said["n"] != "" || said["m"] != "" }
	if counts {
		plugintest.Eventually(t, "the nomination to be known", known)
		return
	}
	for begin := time.Now(); !known() && time.Since(begin) < 200*time.Millisecond; {
		time.Sleep(10 * time.Millisecond)
	}
}

// TestOwnNominations: pods of another profile of the same scheduler are in its own nominator and must not count twice:
// RunFilterPluginsWithNominatedPods, as the scheduler calls it, adds them once.
func TestOwnNominations(t *testing.T) {
	two := pod("two", plugintest.Profile, 10).Containers(nil).Req(map[corev1.ResourceName]string{corev1.ResourceCPU: "2"}).NominatedNodeName("n").Obj()
	c := plugintest.New(t, foreignnominations.Name, foreignnominations.New, "", []*corev1.Node{node("n")}, []*corev1.Pod{two, foreign().NominatedNodeName("elsewhere").Obj()}, "PreFilter", "Filter")
	fits := pod("fits", plugintest.Profile, 5).Containers(nil).Req(map[corev1.ResourceName]string{corev1.ResourceCPU: "2"}).Obj()
	_, state := c.Filter(t, fits)
	info, err := c.Framework.SnapshotSharedLister().NodeInfos().Get("n")
	if err != nil {
		t.Fatal(err)
	}
	if status := c.Framework.RunFilterPluginsWithNominatedPods(t.Context(), state, fits, info); !status.IsSuccess() {
		t.Errorf("2 of 4 CPUs are nominated, a pod with 2 is refused: %s", status.Message())
	}
}

// TestWhatCounts: not only resources count; every filter sees the foreign pod on its node.
func TestWhatCounts(t *testing.T) {
	const host = corev1.LabelHostname
	bare := func(name, scheduler string, priority int32) *st.PodWrapper {
		return st.MakePod().Name(name).Namespace("default").UID(name).SchedulerName(scheduler).Priority(priority).Label("app", "x")
	}
	nominated := func() *st.PodWrapper { return bare("foreign", "default-scheduler", 10).NominatedNodeName("n") }
	for name, tc := range map[string]struct {
		foreign, own *st.PodWrapper
		fits         bool
	}{
		"ports":                       {nominated().HostPort(80), bare("own", plugintest.Profile, 5).HostPort(80), false},
		"other ports":                 {nominated().HostPort(80), bare("own", plugintest.Profile, 5).HostPort(81), true},
		"the own one's anti-affinity": {nominated(), bare("own", plugintest.Profile, 5).PodAntiAffinityExists("app", host, st.PodAntiAffinityWithRequiredReq), false},
		"its anti-affinity": {nominated().PodAntiAffinityExists("app", host, st.PodAntiAffinityWithRequiredReq),
			bare("own", plugintest.Profile, 5).PodAntiAffinityExists("none", host, st.PodAntiAffinityWithRequiredReq), false},
		"anti-affinity to other labels": {nominated(), bare("own", plugintest.Profile, 5).PodAntiAffinityExists("none", host, st.PodAntiAffinityWithRequiredReq), true},
		"spread": {nominated(), bare("own", plugintest.Profile, 5).SpreadConstraint(2, host, corev1.DoNotSchedule,
			st.MakeLabelSelector().Label("app", "x").Obj(), nil, nil, nil, nil), true},
		"spread of one": {nominated(), bare("own", plugintest.Profile, 5).SpreadConstraint(1, host, corev1.DoNotSchedule,
			st.MakeLabelSelector().Label("app", "x").Obj(), nil, nil, nil, nil), false},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := []*corev1.Node{node("n"), node("m")}
			for _, n := range nodes {
				n.Labels = map[string]string{host: n.Name}
			}
			c := plugintest.NewWith(t, nodes, []*corev1.Pod{tc.foreign.Obj()}, nil, append([]plugintest.Plugin{plugin()}, plugintest.Counting()...)...)
			eventuallyCounted(t, c)
			said, _ := c.Filter(t, tc.own.Obj())
			if got := said["n"] == ""; got != tc.fits || !got && !strings.Contains(said["n"], "another scheduler") {
				t.Errorf("fits %t, want %t: %q", got, tc.fits, said["n"])
			}
			if said["m"] != "" {
				t.Errorf("node m says %q", said["m"])
			}
		})
	}
}

func plugin() plugintest.Plugin {
	return plugintest.Plugin{Name: foreignnominations.Name, Factory: foreignnominations.New, Points: []string{"PreFilter", "Filter"}}
}

// eventuallyCounted waits until the plugin does not skip its filter.
func eventuallyCounted(t *testing.T, c *plugintest.Cluster) {
	t.Helper()
	plugintest.Eventually(t, "a nomination to be known", func() bool { return !skips(t, c) })
}

func skips(t *testing.T, c *plugintest.Cluster) bool {
	t.Helper()
	_, state := c.Filter(t, pod("asks", plugintest.Profile, -1000).Obj())
	return state.GetSkipFilterPlugins().Has(foreignnominations.Name)
}

// TestBoundMeanwhile: a pod that is bound in the middle of a cycle is not in that cycle's snapshot. Its resources
// count until a snapshot has the pod, and exactly once from then on.
func TestBoundMeanwhile(t *testing.T) {
	two := map[corev1.ResourceName]string{corev1.ResourceCPU: "2"}
	for name, tc := range map[string]struct{ nominated, bound string }{
		"where it was nominated": {"n", "n"},
		"elsewhere":              {"m", "n"},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := []*corev1.Node{node("n"), node("m")}
			other := foreign().NominatedNodeName(tc.nominated).Containers(nil).Req(two).Obj()
			c := plugintest.New(t, foreignnominations.Name, foreignnominations.New, "", nodes, []*corev1.Pod{other}, "PreFilter", "Filter")
			eventuallyCounted(t, c)
			other = other.DeepCopy()
			other.Spec.NodeName, other.Status.NominatedNodeName = tc.bound, ""
			update(t, c, other)
			// A bound pod takes its room whatever the priorities.
			plugintest.Eventually(t, "the pod's binding to be known", func() bool {
				said, _ := c.Filter(t, pod("probe", plugintest.Profile, 1000).Obj())
				return said["n"] != "" && said["m"] == ""
			})
			for _, priority := range []int32{5, 10, 1000} {
				for range 3 {
					if said, _ := c.Filter(t, pod("own", plugintest.Profile, priority).Obj()); !strings.Contains(said["n"], "another scheduler") {
						t.Fatalf("priority %d: 3 of 4 CPUs beside a pod with 2: node n says %q", priority, said["n"])
					}
				}
			}
			c.SetSnapshot([]*corev1.Pod{other}, nodes)
			if said, _ := c.Filter(t, pod("own", plugintest.Profile, 5).Containers(nil).Req(two).Obj()); said["n"] != "" {
				t.Errorf("2 of 4 CPUs beside a pod with 2 that the snapshot has: %s", said["n"])
			}
			if !skips(t, c) {
				t.Error("the pod is in the snapshot and counted by the plugin all the same")
			}
		})
	}
}

// TestPreemption: a pod may preempt next to nominated resources, but evicts no pods for the nominated resources
// themselves.
func TestPreemption(t *testing.T) {
	for name, tc := range map[string]struct {
		low, nominated, wants string
		victims               string
	}{
		"beside it": {"1", "2", "2", "low"},
		"not in it": {"1", "3", "2", ""},
		"no victim": {"", "3", "2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			sized := func(p *st.PodWrapper, cpu string) *st.PodWrapper {
				return p.Containers(nil).Req(map[corev1.ResourceName]string{corev1.ResourceCPU: cpu})
			}
			own := sized(pod("own", plugintest.Profile, 8), tc.wants).Obj()
			pods := []*corev1.Pod{sized(foreign(), tc.nominated).Obj(), own}
			if tc.low != "" {
				pods = append(pods, sized(pod("low", plugintest.Profile, 0), tc.low).Node("n").Obj())
			}
			c := plugintest.NewWith(t, []*corev1.Node{node("n")}, pods, nil, plugin(),
				plugintest.Plugin{Name: politepreemption.Name, Factory: politepreemption.New, Points: []string{"PostFilter"}})
			eventuallyCounted(t, c)
			nodes := c.NodeInfos()
			state := framework.NewCycleState()
			if _, status, _ := c.Framework.RunPreFilterPlugins(t.Context(), state, own); !status.IsSuccess() {
				t.Fatal(status)
			}
			n, err := nodes.Get("n")
			if err != nil {
				t.Fatal(err)
			}
			status := c.Framework.RunFilterPlugins(t.Context(), state, own, n)
			if status.IsSuccess() {
				t.Fatal("the pod fits without preemption: the test tests nothing")
			}
			statuses := framework.NewDefaultNodeToStatus()
			statuses.Set("n", status)
			result, status := c.Framework.RunPostFilterPlugins(t.Context(), state, own, statuses)
			if got := status.IsSuccess() && result.NominatedNodeName == "n"; got != (tc.victims != "") {
				t.Errorf("preempts %t: %v", got, status)
			}
			gone := func() bool {
				_, err := c.Client.CoreV1().Pods("default").Get(t.Context(), "low", metav1.GetOptions{})
				return apierrors.IsNotFound(err)
			}
			if tc.victims != "" {
				plugintest.Eventually(t, "the pod of low priority to be evicted", gone)
			} else if tc.low != "" && gone() {
				t.Error("the pod of low priority is gone")
			}
		})
	}
}
