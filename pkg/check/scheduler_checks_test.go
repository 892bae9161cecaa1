package check

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	secondLease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/my-scheduler"
	stockLease  = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
)

// lead keeps a Lease renewed in the name of what holder returns, until the test ends.
func lead(t *testing.T, api *stubAPI, path string, holder func() string) {
	t.Helper()
	renew := func() {
		if h := holder(); h != "" {
			api.put(path, &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: path[strings.LastIndex(path, "/")+1:], Namespace: "kube-system"},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: &h, LeaseDurationSeconds: ptr.To(int32(1)), RenewTime: &metav1.MicroTime{Time: time.Now()}},
			})
		}
	}
	renew()
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
				renew()
			}
		}
	}()
}

func always(holder string) func() string { return func() string { return holder } }

// TestThreePods proves SCHED-40 and SCHED-42, and that the check sees each way to break them.
func TestThreePods(t *testing.T) {
	tests := map[string]struct {
		broken  func(*stubAPI)
		wantErr string
	}{
		"each by its own": {nil, ""},
		"second scheduler missing": {func(a *stubAPI) {
			a.bind = func(p *corev1.Pod) (string, string) {
				if p.Spec.SchedulerName == DefaultSchedulerName {
					return "", ""
				}
				return "node-0", p.Spec.SchedulerName
			}
		}, "annotation-second-scheduler is not bound to a node, and no scheduler has looked at it"},
		"stock scheduler binds all": {func(a *stubAPI) {
			a.bind = func(*corev1.Pod) (string, string) { return "node-0", stockSchedulerName }
		}, `names scheduler "my-scheduler" but was bound by "default-scheduler"`},
		"second scheduler binds all (SCHED-25)": {func(a *stubAPI) {
			a.bind = func(*corev1.Pod) (string, string) { return "node-0", DefaultSchedulerName }
		}, `names scheduler "default-scheduler" but was bound by "my-scheduler"`},
		"bound twice": {func(a *stubAPI) { a.events = 2 }, "was bound 2 times"},
		"no events":   {func(a *stubAPI) { a.events = 0 }, "no Scheduled event says by whom"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newStubAPI(t)
			if tc.broken != nil {
				tc.broken(api)
			}
			res := runOne(t.Context(), api.env(t), checkOf("x", threePods), Options{Timeout: 2 * time.Second}.withDefaults())
			wantResult(t, res, tc.wantErr)
		})
	}
}

func wantResult(t *testing.T, res Result, wantErr string) {
	t.Helper()
	switch {
	case wantErr == "" && res.Status != OK:
		t.Errorf("failed: %s", res.Error)
	case wantErr != "" && (res.Status != Failed || !strings.Contains(res.Error, wantErr)):
		t.Errorf("got %s %q, want %q", res.Status, res.Error, wantErr)
	}
}

func TestExamplePodsAreTheDocuments(t *testing.T) {
	want := [][]string{
		{"no-annotation", "pod-with-no-annotation-container", ""},
		{"annotation-default-scheduler", "pod-with-default-annotation-container", "default-scheduler"},
		{"annotation-second-scheduler", "pod-with-second-annotation-container", "my-scheduler"},
	}
	for i, p := range examplePods("my-scheduler", "image") { // SCHED-40
		got := []string{p.pod.Name, p.pod.Spec.Containers[0].Name, p.pod.Spec.SchedulerName}
		if strings.Join(got, " ") != strings.Join(want[i], " ") || p.pod.Labels["name"] != "multischeduler-example" || p.pod.Spec.Containers[0].Image != "image" {
			t.Errorf("pod %d: got %q, want %q", i, got, want[i])
		}
	}
}

// TestSchedulerLease proves SCHED-30, SCHED-35 and SCHED-37.
func TestSchedulerLease(t *testing.T) {
	var flip atomic.Int64
	tests := map[string]struct {
		second, stock func() string
		owns          func(context.Context, string) (bool, error)
		wantErr       string
	}{
		"two holders":                {second: always("a_1"), stock: always("b_1")},
		"stock without election":     {second: always("a_1")},
		"nobody ever led":            {stock: always("b_1"), wantErr: "not found"},
		"the same holder":            {second: always("a_1"), stock: always("a_1"), wantErr: "holds the stock scheduler's Lease"},
		"another replica of ours":    {second: always("a_1"), stock: always("a_2"), owns: func(_ context.Context, h string) (bool, error) { return h == "a_2", nil }, wantErr: "holds the stock scheduler's Lease"},
		"identity cannot be judged":  {second: always("a_1"), stock: always("a_2"), owns: func(context.Context, string) (bool, error) { return false, errors.New("no list") }, wantErr: "no list"},
		"two replicas fight over it": {second: func() string { return []string{"a_1", "a_2"}[flip.Add(1)%2] }, wantErr: "while we looked"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newStubAPI(t)
			if tc.second != nil {
				lead(t, api, secondLease, tc.second)
			}
			if tc.stock != nil {
				lead(t, api, stockLease, tc.stock)
			}
			env := api.env(t)
			env.OwnsIdentity = tc.owns
			wantResult(t, runOne(t.Context(), env, checkOf("x", schedulerLease), Options{}.withDefaults()), tc.wantErr)
		})
	}
	t.Run("dead holder", func(t *testing.T) {
		api := newStubAPI(t)
		once := atomic.Bool{}
		lead(t, api, secondLease, func() string {
			if once.Swap(true) {
				return ""
			}
			return "a_1"
		})
		wantResult(t, runOne(t.Context(), api.env(t), checkOf("x", schedulerLease), Options{}.withDefaults()), "has not renewed it within 1s")
	})
	t.Run("released", func(t *testing.T) {
		api := newStubAPI(t)
		api.put(secondLease, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "my-scheduler"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("")}})
		wantResult(t, runOne(t.Context(), api.env(t), checkOf("x", schedulerLease), Options{}.withDefaults()), "has no holder")
	})
}

// fakeParts are Parts made of funcs; the zero value does nothing.
type fakeParts struct {
	stopScheduler, startScheduler, stopAgents, startAgents func() error
	kill                                                   func(holder string) error
	started                                                atomic.Int64
}

func do(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}
func (p *fakeParts) StopScheduler(context.Context) error { return do(p.stopScheduler) }
func (p *fakeParts) StartScheduler(context.Context) error {
	p.started.Add(1)
	return do(p.startScheduler)
}
func (p *fakeParts) KillLeader(_ context.Context, holder string) error { return p.kill(holder) }
func (p *fakeParts) StopAgents(context.Context) error                  { return do(p.stopAgents) }
func (p *fakeParts) StartAgents(context.Context) error                 { p.started.Add(1); return do(p.startAgents) }

func TestDisruptiveChecksNeedParts(t *testing.T) {
	for _, c := range disruptive() {
		res := runOne(t.Context(), newStubAPI(t).env(t), c, Options{}.withDefaults())
		if res.Status != Skipped || res.Error == "" {
			t.Errorf("%s: got %s %q", c.ID, res.Status, res.Error)
		}
	}
}

// TestSchedulerPending proves SCHED-41.
func TestSchedulerPending(t *testing.T) {
	onlyStock := func(p *corev1.Pod) (string, string) {
		if p.Spec.SchedulerName == DefaultSchedulerName {
			return "", ""
		}
		return "node-0", p.Spec.SchedulerName
	}
	tests := map[string]struct {
		broken  func(*stubAPI, *fakeParts)
		wantErr string
	}{
		"bound once it runs": {nil, ""},
		"does not stop":      {func(_ *stubAPI, p *fakeParts) { p.stopScheduler = func() error { return errors.New("refuses") } }, "stop the second scheduler: refuses"},
		"another one binds it": {func(a *stubAPI, _ *fakeParts) {
			a.bind = func(p *corev1.Pod) (string, string) { return "node-0", p.Spec.SchedulerName }
		}, "was bound to node-0 while the second scheduler was stopped"},
		"another one looks at it": {func(a *stubAPI, _ *fakeParts) {
			a.bind = func(p *corev1.Pod) (string, string) {
				if p.Spec.SchedulerName == DefaultSchedulerName {
					p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable"}}
					a.put("/api/v1/namespaces/"+p.Namespace+"/pods/"+p.Name, p)
				}
				return onlyStock(p)
			}
		}, "got condition PodScheduled=False (Unschedulable)"},
		"another one says something about it": {func(a *stubAPI, _ *fakeParts) {
			a.bind = func(p *corev1.Pod) (string, string) {
				if p.Spec.SchedulerName == DefaultSchedulerName {
					a.mu.Lock()
					a.eventLocked(p, "other-scheduler", "Scheduling", "FailedScheduling", 1)
					a.mu.Unlock()
				}
				return onlyStock(p)
			}
		}, "got an event FailedScheduling of other-scheduler"},
		"does not bind after the start": {func(_ *stubAPI, p *fakeParts) { p.startScheduler = nil }, "annotation-second-scheduler is not bound"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newStubAPI(t)
			api.bind = onlyStock
			parts := &fakeParts{startScheduler: func() error { api.bindAll(DefaultSchedulerName); return nil }}
			if tc.broken != nil {
				tc.broken(api, parts)
			}
			env := api.env(t)
			env.Parts = parts
			res := runOne(t.Context(), env, checkOf("x", schedulerPending), Options{Timeout: 5 * time.Second}.withDefaults())
			wantResult(t, res, tc.wantErr)
			if parts.started.Load() == 0 {
				t.Error("the second scheduler was not started again")
			}
		})
	}
}

// TestSchedulerFailover proves SCHED-36's takeover and that the check sees each way in which it can go wrong.
func TestSchedulerFailover(t *testing.T) {
	const takeover = 60 * time.Millisecond
	tests := map[string]struct {
		next    func(sinceKill time.Duration) string // the holder after the kill
		kill    error
		broken  func(*stubAPI)
		wantErr string
	}{
		"taken over": {},
		"too slow": {next: func(d time.Duration) string {
			if d < 1800*time.Millisecond {
				return "a_1"
			}
			return "a_2"
		}, wantErr: "more than 1.5s"},
		"cannot kill":  {kill: errors.New("no such process"), wantErr: "kill the leader a_1: no such process"},
		"bound twice":  {broken: func(a *stubAPI) { a.events = 2 }, wantErr: "was bound 2 times"},
		"never bound":  {broken: func(a *stubAPI) { a.bind = func(*corev1.Pod) (string, string) { return "", "" } }, wantErr: "created during the failover, is not bound"},
		"wrong binder": {broken: func(a *stubAPI) { a.bind = func(*corev1.Pod) (string, string) { return "node-0", "other" } }, wantErr: `was bound by "other"`},
		"the old one comes back": {next: func(d time.Duration) string {
			if d > takeover && d < 4*takeover {
				return "a_2"
			}
			return "a_1"
		}, wantErr: "two replicas believe that they lead"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newStubAPI(t)
			if tc.broken != nil {
				tc.broken(api)
			}
			var killed atomic.Int64
			if tc.next == nil {
				tc.next = func(d time.Duration) string {
					if d < takeover {
						return "a_1"
					}
					return "a_2"
				}
			}
			lead(t, api, secondLease, func() string {
				if k := killed.Load(); k != 0 {
					return tc.next(time.Since(time.Unix(0, k)))
				}
				return "a_1"
			})
			env := api.env(t)
			env.Parts = &fakeParts{kill: func(holder string) error {
				killed.Store(time.Now().UnixNano())
				if holder != "a_1" {
					return errors.New("wrong holder " + holder)
				}
				return tc.kill
			}}
			res := runOne(t.Context(), env, checkOf("x", schedulerFailover), Options{Timeout: 8 * time.Second}.withDefaults())
			wantResult(t, res, tc.wantErr)
			if tc.wantErr == "" && res.Details["takeover"] == "" {
				t.Errorf("the takeover was not measured: %v", res.Details)
			}
		})
	}
}

func TestBindLogVerdict(t *testing.T) {
	kill := time.Now()
	pod := func(uid, node string) *corev1.Pod {
		p := &corev1.Pod{}
		p.Name, p.UID, p.Spec.NodeName = "pod-"+uid, types.UID(uid), node
		return p
	}
	one := map[string][]binding{"x": {{reporter: "my-scheduler", action: "Binding", count: 1}}}
	tests := map[string]struct {
		nodes   []string
		at      time.Time
		events  map[string][]binding
		wantErr string
	}{
		"once":                          {[]string{"", "n1", "n1"}, kill, one, ""},
		"to two nodes":                  {[]string{"n1", "n2"}, kill, one, "bound more than once: to [n1 n2]"},
		"event lost with the leader":    {[]string{"n1"}, kill.Add(-time.Second), nil, ""},
		"event missing long afterwards": {[]string{"n1"}, kill.Add(time.Minute), nil, "bound 0 times"},
		"event series":                  {[]string{"n1"}, kill, map[string][]binding{"x": {{reporter: "my-scheduler", action: "Binding", count: 2}}}, "bound 2 times"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			log := newBindLog()
			for _, n := range tc.nodes {
				log.see(pod("x", n), tc.at)
			}
			events := bindingsByUID(tc.events)
			err := log.verdict(events, "my-scheduler", kill)
			if (err == nil) != (tc.wantErr == "") || (err != nil && !strings.Contains(err.Error(), tc.wantErr)) {
				t.Errorf("got %v, want %q", err, tc.wantErr)
			}
		})
	}
	if err := newBindLog().verdict(nil, "my-scheduler", kill); err == nil {
		t.Error("no pods prove nothing")
	}
}

func bindingsByUID(in map[string][]binding) map[types.UID][]binding {
	out := map[types.UID][]binding{}
	for uid, b := range in {
		out[types.UID(uid)] = b
	}
	return out
}
