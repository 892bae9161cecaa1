package failoverbarrier

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/plugintest"
)

// answers are what the API server says, one after another; the last one stays.
type answers struct {
	asked int
	each  []func() (map[types.UID]string, error)
}

func (a *answers) list(context.Context) (map[types.UID]string, error) {
	i := min(a.asked, len(a.each)-1)
	a.asked++
	return a.each[i]()
}

func bound(names ...string) func() (map[types.UID]string, error) {
	return func() (map[types.UID]string, error) {
		list := map[types.UID]string{}
		for _, name := range names {
			list[types.UID(name)] = "default/" + name
		}
		return list, nil
	}
}

func node() *corev1.Node {
	return st.MakeNode().Name("n").Capacity(map[corev1.ResourceName]string{corev1.ResourceCPU: "4", corev1.ResourcePods: "10"}).Obj()
}

func pod(name, node string) *corev1.Pod {
	return st.MakePod().Name(name).Namespace("default").UID(name).SchedulerName(plugintest.Profile).Node(node).Obj()
}

func start(t *testing.T, timeout time.Duration, a *answers, pods ...*corev1.Pod) *plugintest.Cluster {
	t.Helper()
	return plugintest.New(t, Name, func(_ context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		return newPlugin(h, timeout, a), nil
	}, "", []*corev1.Node{node()}, pods, "PreFilter")
}

// TestBarrier: kubernetes#137308. A pod that the API server has bound and the snapshot lacks keeps all others back.
func TestBarrier(t *testing.T) {
	for name, tc := range map[string]struct {
		bound   *answers
		want    string
		asked   int
		waiting bool
	}{
		"caught up":           {&answers{each: []func() (map[types.UID]string, error){bound("a", "b")}}, "", 1, false},
		"nothing bound":       {&answers{each: []func() (map[types.UID]string, error){bound()}}, "", 1, false},
		"one is not known":    {&answers{each: []func() (map[types.UID]string, error){bound("a", "b", "c")}}, "1 of 3 bound pods are not known yet", 1, true},
		"same name, not same": {&answers{each: []func() (map[types.UID]string, error){func() (map[types.UID]string, error) { return map[types.UID]string{"other": "default/a"}, nil }}}, "1 of 1 bound pods", 1, true},
		"API server is away": {&answers{each: []func() (map[types.UID]string, error){func() (map[types.UID]string, error) { return nil, errors.New("refused") }}},
			"list bound pods: refused", 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, 150*time.Millisecond, tc.bound, pod("a", "n"), pod("b", "n"))
			said, _ := c.Filter(t, pod("new", ""))
			if got := said["n"]; (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("says %q, want %q", got, tc.want)
			}
			if tc.bound.asked != tc.asked {
				t.Errorf("asked %d times", tc.bound.asked)
			}
			time.Sleep(again + later + 100*time.Millisecond)
			if got := slices.Contains(c.Activated(), "new"); got != tc.waiting {
				t.Errorf("activated %v", c.Activated())
			}
		})
	}
}

// TestStaysOpen: one list for a whole life, however many pods come.
func TestStaysOpen(t *testing.T) {
	a := &answers{each: []func() (map[types.UID]string, error){bound("a"), bound("a", "never")}}
	c := start(t, 100*time.Millisecond, a, pod("a", "n"))
	for range 3 {
		if said, _ := c.Filter(t, pod("new", "")); said["n"] != "" {
			t.Fatal(said)
		}
	}
	if a.asked != 1 {
		t.Errorf("asked %d times", a.asked)
	}
}

// TestNeverOpensUncaught: as long as the pod is not known the barrier is shut, with a new list each time.
func TestNeverOpensUncaught(t *testing.T) {
	a := &answers{each: []func() (map[types.UID]string, error){bound("a", "missing")}}
	c := start(t, 100*time.Millisecond, a, pod("a", "n"))
	for range 3 {
		if said, _ := c.Filter(t, pod("new", "")); !strings.Contains(said["n"], "not known yet") {
			t.Fatal(said)
		}
	}
}

// TestDeletedMeanwhile: a pod that was bound and is gone before the informer saw it does not keep the barrier shut.
func TestDeletedMeanwhile(t *testing.T) {
	a := &answers{each: []func() (map[types.UID]string, error){bound("a", "gone"), bound("a")}}
	c := start(t, 2*time.Second, a, pod("a", "n"))
	if said, _ := c.Filter(t, pod("new", "")); said["n"] == "" {
		t.Fatal("opened at once")
	}
	if said, _ := c.Filter(t, pod("new", "")); said["n"] != "" {
		t.Errorf("still shut after a fresh list: %s", said["n"])
	}
}

// TestNodeIsGone: pods of a node that was deleted are bound until PodGC deletes them, and in no snapshot. One that the
// informer lacks may be on any node.
func TestNodeIsGone(t *testing.T) {
	for name, tc := range map[string]struct {
		bound []string
		want  string
	}{
		"the informer has it":     {[]string{"a", "orphan"}, ""},
		"another one is not seen": {[]string{"a", "orphan", "unseen"}, "1 of 3 bound pods are not known yet"},
	} {
		t.Run(name, func(t *testing.T) {
			a := &answers{each: []func() (map[types.UID]string, error){bound(tc.bound...)}}
			c := start(t, 200*time.Millisecond, a, pod("a", "n"))
			if _, err := c.Client.CoreV1().Pods("default").Create(t.Context(), pod("orphan", "gone"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			c.Filter(t, pod("new", ""))
			time.Sleep(again)
			if said, _ := c.Filter(t, pod("new", "")); (tc.want == "") != (said["n"] == "") || !strings.Contains(said["n"], tc.want) {
				t.Errorf("says %q, want %q", said["n"], tc.want)
			}
		})
	}
}

// TestSnapshotDecides: the informer knows the pod, the cycle's snapshot does not: this cycle must not bind.
func TestSnapshotDecides(t *testing.T) {
	a := &answers{each: []func() (map[types.UID]string, error){bound("late")}}
	c := start(t, time.Second, a)
	if _, err := c.Client.CoreV1().Pods("default").Create(t.Context(), pod("late", "n"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	said, _ := c.Filter(t, pod("new", ""))
	if !strings.Contains(said["n"], "1 of 1 bound pods are not known yet") {
		t.Errorf("says %q", said["n"])
	}
	if took := time.Since(begin); took > 900*time.Millisecond {
		t.Errorf("waited %v although the informer has it", took)
	}
}

func TestQueueingHint(t *testing.T) {
	c := start(t, time.Second, &answers{each: []func() (map[types.UID]string, error){bound()}})
	events, err := c.Plugin.(fwk.EnqueueExtensions).EventsToRegister(t.Context())
	if err != nil || len(events) != 1 {
		t.Fatalf("%v %v", events, err)
	}
	for _, tc := range []struct {
		added *corev1.Pod
		want  fwk.QueueingHint
	}{{pod("a", "n"), fwk.Queue}, {pod("a", ""), fwk.QueueSkip}} {
		if got, err := events[0].QueueingHintFn(klog.Background(), pod("new", ""), nil, tc.added); err != nil || got != tc.want {
			t.Errorf("%s: %v %v", tc.added.Spec.NodeName, got, err)
		}
	}
	if sign := c.Framework.SignPod(t.Context(), pod("new", "")); len(sign) == 0 {
		t.Error("the plugin keeps pods from being signed")
	}
}
