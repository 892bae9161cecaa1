package foreignnominations_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/foreignnominations"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/plugintest"
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
			eventuallyKnown(t, c, tc.foreign)
			said, _ := c.Filter(t, pod("pod", plugintest.Profile, 5).Obj())
			if got := said["n"]; (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("node n says %q, want %q", got, tc.want)
			}
		})
	}
}

// eventuallyKnown gives the plugin's handler of pods a moment: syncing the informer does not wait for it.
func eventuallyKnown(t *testing.T, c *plugintest.Cluster, p *corev1.Pod) {
	t.Helper()
	if p.Status.NominatedNodeName == "" || p.Spec.NodeName != "" {
		return
	}
	for range 20 {
		if said, _ := c.Filter(t, pod("big", plugintest.Profile, -1000).Obj()); said["n"] != "" || said["m"] != "" {
			return
		}
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

// TestPorts: not only resources count.
func TestPorts(t *testing.T) {
	other := st.MakePod().Name("foreign").Namespace("default").UID("foreign").SchedulerName("default-scheduler").Priority(10).
		NominatedNodeName("n").PodAntiAffinityExists("none", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq).Obj()
	c := plugintest.New(t, foreignnominations.Name, foreignnominations.New, "", []*corev1.Node{node("n")}, []*corev1.Pod{other}, "PreFilter", "Filter")
	if said, _ := c.Filter(t, pod("pod", plugintest.Profile, 5).Obj()); said["n"] != "" {
		t.Errorf("a nominated pod without requests keeps another out: %s", said["n"])
	}
}

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
			eventuallyKnown(t, c, foreign().Obj())
			if said, _ := c.Filter(t, pod("pod", plugintest.Profile, 5).Obj()); said["n"] == "" {
				t.Fatal("the pod was not kept out")
			}
			if got := c.Activated(); len(got) > 0 {
				t.Fatalf("activated %v before anything changed", got)
			}
			end(t, c)
			for range 200 {
				if slices.Contains(c.Activated(), "pod") {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
			t.Errorf("activated %v", c.Activated())
		})
	}
}

func update(t *testing.T, c *plugintest.Cluster, p *corev1.Pod) {
	t.Helper()
	if _, err := c.Client.CoreV1().Pods("default").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestQueueingHints: a deleted pod that was nowhere makes no room.
func TestQueueingHints(t *testing.T) {
	c := plugintest.New(t, foreignnominations.Name, foreignnominations.New, "", nil, nil, "PreFilter", "Filter")
	events, err := c.Plugin.(fwk.EnqueueExtensions).EventsToRegister(t.Context())
	if err != nil || len(events) != 2 {
		t.Fatalf("events %v, error %v", events, err)
	}
	for _, tc := range []struct {
		deleted *corev1.Pod
		want    fwk.QueueingHint
	}{
		{foreign().NominatedNodeName("").Obj(), fwk.QueueSkip},
		{foreign().Obj(), fwk.Queue},
		{foreign().NominatedNodeName("").Node("n").Obj(), fwk.Queue},
	} {
		if got, err := events[0].QueueingHintFn(klog.Background(), pod("pod", plugintest.Profile, 5).Obj(), tc.deleted, nil); got != tc.want || err != nil {
			t.Errorf("%v: %v %v", tc.deleted.Spec.NodeName, got, err)
		}
	}
}

// TestSign: pods that differ in priority see different rooms.
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
