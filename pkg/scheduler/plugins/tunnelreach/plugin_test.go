// SPDX-License-Identifier: Apache-2.0

package tunnelreach

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

	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/plugintest"
)

const refused = "no live tunnel agent"

// node has a hostname, a zone and, unless "", the condition.
func node(name, zone string, ready corev1.ConditionStatus) *corev1.Node {
	n := st.MakeNode().Name(name).Label(corev1.LabelHostname, name).Label(corev1.LabelTopologyZone, zone).
		Capacity(map[corev1.ResourceName]string{corev1.ResourceCPU: "4", corev1.ResourcePods: "10"})
	if ready != "" {
		n.Condition(pluginargs.TunnelReadyCondition, ready, "", "")
	}
	return n.Obj()
}

func pod(label string) *corev1.Pod {
	p := st.MakePod().Name("pod").Namespace("default").UID("pod").SchedulerName(plugintest.Profile).Label("app", "hook")
	if label != "" {
		p.Label(pluginargs.ReachLabel, label)
	}
	return p.Obj()
}

// TestRequire: nodes without an agent in their domain are refused, but only to pods that must be reached and only as
// long as any agent lives.
func TestRequire(t *testing.T) {
	a, b := node("a", "1", corev1.ConditionTrue), node("b", "1", corev1.ConditionFalse)
	c, d := node("c", "2", ""), node("d", "", corev1.ConditionTrue)
	delete(d.Labels, corev1.LabelTopologyZone)
	for name, tc := range map[string]struct {
		args, label string
		nodes       []*corev1.Node
		fits        string
	}{
		"by host":               {`{"mode": "Require", "automatic": false}`, "true", []*corev1.Node{a, b, c}, "a"},
		"by zone":               {`{"mode": "Require", "automatic": false, "topologyKey": "topology.kubernetes.io/zone"}`, "true", []*corev1.Node{a, b, c}, "ab"},
		"agent without zone":    {`{"mode": "Require", "automatic": false, "topologyKey": "topology.kubernetes.io/zone"}`, "true", []*corev1.Node{c, d}, "cd"},
		"not to be reached":     {`{"mode": "Require", "automatic": false}`, "", []*corev1.Node{a, b, c}, "abc"},
		"need not be reached":   {`{"mode": "Require", "automatic": false}`, "false", []*corev1.Node{a, b, c}, "abc"},
		"no agent lives":        {`{"mode": "Require", "automatic": false}`, "true", []*corev1.Node{b, c}, "bc"},
		"prefer refuses no-one": {`{"automatic": false}`, "true", []*corev1.Node{a, b, c}, "abc"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := plugintest.New(t, Name, New, tc.args, tc.nodes, nil, "PreFilter", "Filter", "PreScore", "Score")
			said, _ := cluster.Filter(t, pod(tc.label))
			for _, n := range tc.nodes {
				if got, want := said[n.Name] == "", strings.Contains(tc.fits, n.Name); got != want {
					t.Errorf("%s fits: %t, want %t (%s)", n.Name, got, want, said[n.Name])
				} else if !got && !strings.Contains(said[n.Name], refused) {
					t.Errorf("%s does not say why: %q", n.Name, said[n.Name])
				}
			}
		})
	}
}

// TestSaysWhatIsNotReached: once for each pod, when it is placed, the event says that it is not reached and why.
func TestSaysWhatIsNotReached(t *testing.T) {
	old := node("old", "1", corev1.ConditionTrue)
	old.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(time.Now().Add(-pluginargs.TunnelReadyStale - time.Minute))
	fresh := node("fresh", "1", corev1.ConditionTrue)
	fresh.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
	with, without := node("with", "1", corev1.ConditionTrue), node("without", "1", corev1.ConditionUnknown)
	for name, tc := range map[string]struct {
		args, label string
		nodes       []*corev1.Node
		on          string
		want        string
	}{
		"no agent":            {`{"mode": "Require", "automatic": false}`, "true", []*corev1.Node{without}, "without", EventNoAgent},
		"stale heartbeat":     {`{"mode": "Require", "automatic": false}`, "true", []*corev1.Node{old}, "old", "1 nodes' conditions are older than 15m0s"},
		"an agent":            {`{"mode": "Require", "automatic": false}`, "true", []*corev1.Node{with}, "with", ""},
		"an agent, seen":      {`{"mode": "Require", "automatic": false}`, "true", []*corev1.Node{fresh}, "fresh", ""},
		"outweighed":          {`{"automatic": false}`, "true", []*corev1.Node{with, without}, "without", EventNotReached},
		"preferred":           {`{"automatic": false}`, "true", []*corev1.Node{with, without}, "with", ""},
		"need not be reached": {`{"automatic": false}`, "false", []*corev1.Node{with, without}, "without", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := plugintest.New(t, Name, New, tc.args, tc.nodes, nil, "PreFilter", "Filter", "PreScore", "Score", "PostBind")
			said, state := c.Filter(t, pod(tc.label))
			if said[tc.on] != "" {
				t.Fatalf("node %s refuses: %s", tc.on, said[tc.on])
			}
			if len(c.Events.Events) > 0 {
				t.Errorf("an event before the pod is bound: %s", <-c.Events.Events)
			}
			c.Framework.RunPostBindPlugins(t.Context(), state, pod(tc.label), tc.on)
			got := ""
			if len(c.Events.Events) > 0 {
				got = <-c.Events.Events
			}
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("event %q, want %q", got, tc.want)
			}
		})
	}
}

// TestStale: an agent with a stale heartbeat does not count, and the others still do.
func TestStale(t *testing.T) {
	nodes := []*corev1.Node{node("stale", "1", corev1.ConditionTrue), node("seen", "1", corev1.ConditionTrue)}
	for i, age := range []time.Duration{pluginargs.TunnelReadyStale + time.Minute, pluginargs.TunnelReadyHeartbeat} {
		nodes[i].Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(time.Now().Add(-age))
	}
	c := plugintest.New(t, Name, New, `{"mode": "Require", "automatic": false}`, nodes, nil, "PreFilter", "Filter")
	if said, _ := c.Filter(t, pod("true")); said["seen"] != "" || !strings.Contains(said["stale"], refused) {
		t.Errorf("%q", said)
	}
}

// TestSeenAgain: a pod that was rejected because of a stale heartbeat is retried when the heartbeat is updated,
// although nothing else changes.
func TestSeenAgain(t *testing.T) {
	stale, seen := node("stale", "1", corev1.ConditionTrue), node("seen", "1", corev1.ConditionTrue)
	stale.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(time.Now().Add(-pluginargs.TunnelReadyStale - time.Minute))
	seen.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
	c := plugintest.New(t, Name, New, `{"mode": "Require", "automatic": false}`, []*corev1.Node{stale, seen}, nil, "PreFilter", "Filter")
	if said, _ := c.Filter(t, pod("true")); !strings.Contains(said["stale"], refused) {
		t.Fatalf("%q", said)
	}
	beat := func(n *corev1.Node) {
		n = n.DeepCopy()
		n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(time.Now().Add(time.Second))
		if _, err := c.Client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	beat(seen)
	time.Sleep(settle + 200*time.Millisecond)
	if got := c.Activated(); len(got) > 0 {
		t.Fatalf("activated %v by a heartbeat that tells nothing new", got)
	}
	beat(stale)
	plugintest.Eventually(t, "the pod to be activated", func() bool { return slices.Contains(c.Activated(), "pod") })
}

// TestGrowsStale: a rejected pod is retried when the heartbeat of the last agent becomes stale, and not if that
// heartbeat was updated in the meantime.
func TestGrowsStale(t *testing.T) {
	const left = 2 * time.Second
	for name, tc := range map[string]struct{ seen, want bool }{"heartbeat not updated": {false, true}, "heartbeat updated": {true, false}} {
		t.Run(name, func(t *testing.T) {
			last, other := node("last", "1", corev1.ConditionTrue), node("other", "1", corev1.ConditionFalse)
			beat := metav1.NewTime(time.Now().Truncate(time.Second))
			last.Status.Conditions[0].LastHeartbeatTime = beat
			c := plugintest.New(t, Name, New, `{"mode": "Require", "automatic": false}`, []*corev1.Node{last, other}, nil, "PreFilter", "Filter")
			ahead := time.Until(beat.Add(pluginargs.TunnelReadyStale)) - left
			c.Plugin.(*Plugin).now = func() time.Time { return time.Now().Add(ahead) }
			if said, _ := c.Filter(t, pod("true")); !strings.Contains(said["other"], refused) {
				t.Fatalf("%q", said)
			}
			if tc.seen {
				last = last.DeepCopy()
				last.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(beat.Add(pluginargs.TunnelReadyStale))
				if _, err := c.Client.CoreV1().Nodes().UpdateStatus(t.Context(), last, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(left + settle)
				if got := c.Activated(); len(got) > 0 {
					t.Errorf("activated %v although an agent counts", got)
				}
				return
			}
			plugintest.Eventually(t, "the pod to be activated", func() bool { return slices.Contains(c.Activated(), "pod") })
			if said, _ := c.Filter(t, pod("true")); said["other"] != "" {
				t.Errorf("activated too early: %q", said["other"])
			}
		})
	}
}

// TestStaleAt: the last condition that counts decides, and one without a heartbeat counts for ever.
func TestStaleAt(t *testing.T) {
	now := time.Now()
	aged := func(name string, age time.Duration) *corev1.Node {
		n := node(name, "1", corev1.ConditionTrue)
		n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(now.Add(-age))
		return n
	}
	silent, elsewhere := aged("silent", 0), aged("elsewhere", 0)
	silent.Status.Conditions[0].LastHeartbeatTime = metav1.Time{}
	delete(elsewhere.Labels, corev1.LabelHostname)
	p := &Plugin{args: pluginargs.TunnelReachArgs{TopologyKey: corev1.LabelHostname}, now: func() time.Time { return now }}
	for name, tc := range map[string]struct {
		nodes []*corev1.Node
		want  time.Time
	}{
		"the last one":      {[]*corev1.Node{aged("a", time.Minute), aged("b", 5*time.Minute)}, now.Add(pluginargs.TunnelReadyStale - time.Minute)},
		"one is for ever":   {[]*corev1.Node{aged("a", time.Minute), silent}, time.Time{}},
		"one is stale":      {[]*corev1.Node{aged("a", time.Minute), aged("b", time.Hour)}, now.Add(pluginargs.TunnelReadyStale - time.Minute)},
		"one has no domain": {[]*corev1.Node{aged("a", time.Minute), elsewhere}, now.Add(pluginargs.TunnelReadyStale - time.Minute)},
		"none":              {nil, time.Time{}},
	} {
		if got := p.survey(slices.Values(tc.nodes)).until; !got.Equal(tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestPrefer(t *testing.T) {
	nodes := []*corev1.Node{node("a", "1", corev1.ConditionTrue), node("b", "1", corev1.ConditionFalse)}
	c := plugintest.New(t, Name, New, `{"automatic": false}`, nodes, nil, "PreFilter", "Filter", "PreScore", "Score")
	for label, want := range map[string]map[string]int64{"true": {"a": 100, "b": 0}, "": {"a": 0, "b": 0}} {
		_, state := c.Filter(t, pod(label))
		infos, err := c.Framework.SnapshotSharedLister().NodeInfos().List()
		if err != nil {
			t.Fatal(err)
		}
		if status := c.Framework.RunPreScorePlugins(t.Context(), state, pod(label), infos); !status.IsSuccess() {
			t.Fatal(status)
		}
		scores, status := c.Framework.RunScorePlugins(t.Context(), state, pod(label), infos)
		if !status.IsSuccess() {
			t.Fatal(status)
		}
		for _, s := range scores {
			if s.TotalScore != want[s.Name] {
				t.Errorf("label %q: %s has %d, want %d", label, s.Name, s.TotalScore, want[s.Name])
			}
		}
	}
}

func TestQueueingHints(t *testing.T) {
	c := plugintest.New(t, Name, New, `{"automatic": false}`, nil, nil, "PreFilter", "Filter", "PreScore", "Score")
	events, err := c.Plugin.(fwk.EnqueueExtensions).EventsToRegister(t.Context())
	if err != nil || len(events) != 2 {
		t.Fatalf("%v %v", events, err)
	}
	ready, not := node("a", "1", corev1.ConditionTrue), node("a", "1", corev1.ConditionFalse)
	moved := node("a", "1", corev1.ConditionFalse)
	moved.Labels[corev1.LabelHostname] = "other"
	other := pod("false")
	other.UID = "other"
	for name, tc := range map[string]struct {
		event    int
		old, new any
		want     fwk.QueueingHint
	}{
		"agent comes":       {0, not, ready, fwk.Queue},
		"agent goes":        {0, ready, not, fwk.Queue},
		"nothing of it":     {0, not, not, fwk.QueueSkip},
		"node comes":        {0, nil, not, fwk.Queue},
		"node goes":         {0, not, nil, fwk.Queue},
		"node moves":        {0, not, moved, fwk.Queue},
		"label opts out":    {1, pod("true"), pod("false"), fwk.Queue},
		"label stays":       {1, pod("true"), pod("true"), fwk.QueueSkip},
		"other pod's label": {1, pod("true"), other, fwk.QueueSkip},
	} {
		if got, err := events[tc.event].QueueingHintFn(klog.Background(), pod("true"), tc.old, tc.new); err != nil || got != tc.want {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
}

// TestSign: pods that must be reached are not like the others.
func TestSign(t *testing.T) {
	c := plugintest.New(t, Name, New, `{"automatic": false}`, nil, nil, "PreFilter", "Filter", "PreScore", "Score")
	reached, other := c.Framework.SignPod(t.Context(), pod("true")), c.Framework.SignPod(t.Context(), pod(""))
	if len(reached) == 0 || string(reached) == string(other) || string(other) != string(c.Framework.SignPod(t.Context(), pod("false"))) {
		t.Errorf("signatures %s and %s", reached, other)
	}
}
