// SPDX-License-Identifier: Apache-2.0

package failoverbarrier

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
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

// answers are the responses of the API server, one page after another; the last one is repeated.
type answers struct {
	mu     sync.Mutex
	tokens []string
	each   []func() (pods map[types.UID]string, next string, err error)
}

func (a *answers) page(_ context.Context, token string) (map[types.UID]string, string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := min(len(a.tokens), len(a.each)-1)
	a.tokens = append(a.tokens, token)
	return a.each[i]()
}

func (a *answers) asked() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.tokens)
}

func says(each ...func() (map[types.UID]string, string, error)) *answers { return &answers{each: each} }

func bound(names ...string) func() (map[types.UID]string, string, error) { return part("", names...) }

// part is a page that another one follows.
func part(next string, names ...string) func() (map[types.UID]string, string, error) {
	return func() (map[types.UID]string, string, error) {
		list := map[types.UID]string{}
		for _, name := range names {
			list[types.UID(name)] = "default/" + name
		}
		return list, next, nil
	}
}

func fails(next string, err error) func() (map[types.UID]string, string, error) {
	return func() (map[types.UID]string, string, error) { return nil, next, err }
}

func node() *corev1.Node {
	return st.MakeNode().Name("n").Capacity(map[corev1.ResourceName]string{corev1.ResourceCPU: "4", corev1.ResourcePods: "10"}).Obj()
}

func pod(name, node string) *corev1.Pod {
	return st.MakePod().Name(name).Namespace("default").UID(name).SchedulerName(plugintest.Profile).Node(node).Obj()
}

func start(t *testing.T, timeout time.Duration, a *answers, pods ...*corev1.Pod) *plugintest.Cluster {
	t.Helper()
	return startWith(t, timeout, a, newTenure(nil, nil, newPulse(nil, clock())), pods...)
}

func startWith(t *testing.T, timeout time.Duration, bound lister, leads *tenure, pods ...*corev1.Pod) *plugintest.Cluster {
	t.Helper()
	return plugintest.New(t, Name, func(ctx context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		return newPlugin(ctx, h, timeout, bound, leads), nil
	}, "", []*corev1.Node{node()}, pods, "PreFilter", "PreBind")
}

// TestBarrier: a bound pod that the snapshot lacks holds back all other pods (kubernetes#137308).
func TestBarrier(t *testing.T) {
	other := func() (map[types.UID]string, string, error) {
		return map[types.UID]string{"other": "default/a"}, "", nil
	}
	for name, tc := range map[string]struct {
		bound *answers
		want  string
	}{
		"caught up":              {says(bound("a", "b")), ""},
		"nothing bound":          {says(bound()), ""},
		"one is not known":       {says(bound("a", "b", "c")), "1 of 3 bound pods are not known yet"},
		"one is on a later page": {says(part("1", "a"), part("2", "b"), bound("c")), "1 of 3 bound pods are not known yet"},
		"same name, not same":    {says(other), "1 of 1 bound pods"},
		"API server is away":     {says(fails("", errors.New("refused"))), "list bound pods: refused"},
		"and away in the middle": {says(part("1", "a"), fails("1", errors.New("refused"))), "list bound pods: refused"},
	} {
		t.Run(name, func(t *testing.T) {
			timeout := time.Second
			if tc.want == "" {
				timeout = 5 * time.Second
			}
			c := start(t, timeout, tc.bound, pod("a", "n"), pod("b", "n"))
			said, state := c.Filter(t, pod("new", ""))
			if got := said["n"]; (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("says %q, want %q", got, tc.want)
			}
			if state.ShouldSkipAllPostFilterPlugins() != (tc.want != "") {
				t.Error("a pod that is kept back, and no other, keeps its nomination")
			}
			if tc.want != "" {
				plugintest.Eventually(t, "the pod to be activated", func() bool { return slices.Contains(c.Activated(), "new") })
			} else if time.Sleep(3 * again); len(c.Activated()) > 0 {
				t.Errorf("activated %v", c.Activated())
			}
		})
	}
}

// slow takes longer for a page than a cycle may take for all.
type slow struct{ *answers }

func (s slow) page(ctx context.Context, token string) (map[types.UID]string, string, error) {
	pause(ctx, 60*time.Millisecond)
	if ctx.Err() != nil {
		return nil, token, ctx.Err()
	}
	return s.answers.page(ctx, token)
}

// TestLongList: a list takes longer than one scheduling attempt may wait. The next attempt continues it and does not start
// over.
func TestLongList(t *testing.T) {
	a := says(part("1", "a"), part("2", "b"), part("3"), part("4"), part("5"), bound())
	c := startWith(t, 100*time.Millisecond, slow{a}, newTenure(nil, nil, newPulse(nil, clock())), pod("a", "n"), pod("b", "n"))
	if said, _ := c.Filter(t, pod("new", "")); !strings.Contains(said["n"], "is not complete yet") {
		t.Errorf("the first attempt says %q", said["n"])
	}
	plugintest.Eventually(t, "the barrier to open", func() bool { said, _ := c.Filter(t, pod("new", "")); return said["n"] == "" })
	if got := a.asked(); !slices.Equal(got, []string{"", "1", "2", "3", "4", "5"}) {
		t.Errorf("asked for pages %q", got)
	}
}

// TestGoesOn: after an error in the middle of a list the plugin continues the list. It starts over, and drops what it has,
// only if the error leaves no token to continue with.
func TestGoesOn(t *testing.T) {
	for name, tc := range map[string]struct {
		bound *answers
		pages []string
	}{
		"refused once":         {says(part("1", "a"), fails("1", errors.New("refused")), bound("b")), []string{"", "1", "1"}},
		"expired with a place": {says(part("1", "a"), fails("1'", errors.New("expired")), bound("b")), []string{"", "1", "1'"}},
		"expired":              {says(part("1", "gone"), fails("", errors.New("expired")), bound("a", "b")), []string{"", "1", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, 5*time.Second, tc.bound, pod("a", "n"), pod("b", "n"))
			plugintest.Eventually(t, "the barrier to open", func() bool { said, _ := c.Filter(t, pod("new", "")); return said["n"] == "" })
			if got := tc.bound.asked(); !slices.Equal(got, tc.pages) {
				t.Errorf("asked for pages %q, want %q", got, tc.pages)
			}
		})
	}
}

// TestStaysOpen: one list is enough for the life of the process, however many pods arrive.
func TestStaysOpen(t *testing.T) {
	a := says(bound("a"), bound("a", "never"))
	c := start(t, 5*time.Second, a, pod("a", "n"))
	for range 3 {
		if said, _ := c.Filter(t, pod("new", "")); said["n"] != "" {
			t.Fatal(said)
		}
	}
	time.Sleep(fresh + 3*again)
	if got := a.asked(); len(got) != 1 {
		t.Errorf("asked %d times", len(got))
	}
}

// TestNeverOpensUncaught: the barrier stays closed as long as the snapshot lacks the pod.
func TestNeverOpensUncaught(t *testing.T) {
	a := says(bound("a", "missing"))
	c := start(t, 5*time.Second, a, pod("a", "n"))
	for len(a.asked()) < 3 {
		if said, _ := c.Filter(t, pod("new", "")); !strings.Contains(said["n"], "1 of 2 bound pods are not known yet") {
			t.Fatal(said)
		}
	}
}

// TestOthersGoOn: the barrier does not wait for pods that others bind after the first list: with a busy default scheduler
// it would never open.
func TestOthersGoOn(t *testing.T) {
	a := says(bound("a", "gone"), bound("a", "new-1", "new-2"))
	c := start(t, 500*time.Millisecond, a, pod("a", "n"))
	plugintest.Eventually(t, "the barrier to open", func() bool { said, _ := c.Filter(t, pod("new", "")); return said["n"] == "" })
}

// TestDeletedMeanwhile: a pod that was bound and is gone before the informer saw it does not keep the barrier closed.
func TestDeletedMeanwhile(t *testing.T) {
	c := start(t, 2*time.Second, says(bound("a", "gone"), bound("a")), pod("a", "n"))
	if said, _ := c.Filter(t, pod("new", "")); said["n"] == "" {
		t.Fatal("opened at once")
	}
	plugintest.Eventually(t, "the barrier to open", func() bool { said, _ := c.Filter(t, pod("new", "")); return said["n"] == "" })
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
			a := says(bound(tc.bound...))
			c := start(t, 5*time.Second, a, pod("a", "n"))
			if _, err := c.Client.CoreV1().Pods("default").Create(t.Context(), pod("orphan", "gone"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			plugintest.Eventually(t, "the informer to have the orphan", func() bool {
				said, _ := c.Filter(t, pod("new", ""))
				return (tc.want == "") == (said["n"] == "") && strings.Contains(said["n"], tc.want)
			})
		})
	}
}

// TestSnapshotDecides: the informer knows the pod, the cycle's snapshot does not: this cycle must not bind.
func TestSnapshotDecides(t *testing.T) {
	a := says(bound("late"))
	c := start(t, 10*time.Second, a)
	if _, err := c.Client.CoreV1().Pods("default").Create(t.Context(), pod("late", "n"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var took time.Duration
	for range 5 { // a busy machine may delay one cycle, or the informer
		begin := time.Now()
		said, _ := c.Filter(t, pod("new", ""))
		if !strings.Contains(said["n"], "1 of 1 bound pods are not known yet") {
			t.Errorf("says %q", said["n"])
		}
		if took = time.Since(begin); took < fresh {
			return
		}
	}
	t.Errorf("waited %v although the informer has it", took)
}

func TestQueueingHint(t *testing.T) {
	c := start(t, time.Second, says(bound()))
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
