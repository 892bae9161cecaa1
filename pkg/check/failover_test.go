// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestSchedulerFailover proves that the check passes if another replica takes over the Lease of a killed
// leader in time, and that it sees each way in which this can go wrong.
// It observes SCHED-36 of docs/requirements.md.
func TestSchedulerFailover(t *testing.T) {
	const takeover = 60 * time.Millisecond
	tests := map[string]struct {
		next    func(sinceKill time.Duration, seen bool) string // the holder after the kill, and after the check has seen another
		steady  time.Duration
		limit   time.Duration // of a check that waits until then
		kill    error
		broken  func(*stubAPI)
		wantErr string
	}{
		"taken over": {},
		"too slow": {next: func(d time.Duration, _ bool) string {
			if d < 6*time.Second {
				return "" // dead: the Lease stays as it is
			}
			return "a_2"
		}, wantErr: "more than 5s"},
		"outlives the order to kill it": {next: func(d time.Duration, _ bool) string {
			switch {
			case d < 2500*time.Millisecond:
				return "a_1"
			case d < 6*time.Second:
				return ""
			}
			return "a_2"
		}},
		"is not killed": {next: func(time.Duration, bool) string { return "a_1" }, limit: 6 * time.Second, wantErr: "a_1 still renews Lease"},
		"cannot kill":   {kill: errors.New("no such process"), wantErr: "kill the leader a_1: no such process"},
		"bound twice":   {broken: func(a *stubAPI) { a.events = 2 }, wantErr: "was bound 2 times"},
		"never bound":   {broken: func(a *stubAPI) { a.bind = func(*corev1.Pod) (string, string) { return "", "" } }, limit: 6 * time.Second, wantErr: "created during the failover, is not bound"},
		"wrong binder":  {broken: func(a *stubAPI) { a.bind = func(*corev1.Pod) (string, string) { return "node-0", "other" } }, wantErr: `was bound by "other"`},
		"the old one comes back": {next: func(d time.Duration, seen bool) string {
			if d > takeover && !seen {
				return "a_2"
			}
			return "a_1"
		}, steady: 5 * time.Second, wantErr: "two replicas act as leader"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newStubAPI(t)
			if tc.broken != nil {
				tc.broken(api)
			}
			var killed atomic.Int64
			var seen atomic.Bool
			api.served = func(path string, obj map[string]any) {
				if path == secondLease && holderOf(fromMap[coordinationv1.Lease](obj)) == "a_2" {
					seen.Store(true)
				}
			}
			if tc.next == nil {
				tc.next = func(d time.Duration, _ bool) string {
					if d < takeover {
						return "a_1"
					}
					return "a_2"
				}
			}
			lead(t, api, secondLease, func() string {
				if k := killed.Load(); k != 0 {
					return tc.next(time.Since(time.Unix(0, k)), seen.Load())
				}
				return "a_1"
			})
			env := api.env(t)
			env.times.steady = cmp.Or(tc.steady, env.times.steady)
			env.Parts = &fakeParts{kill: func(holder string) error {
				killed.Store(time.Now().UnixNano())
				if holder != "a_1" {
					return errors.New("wrong holder " + holder)
				}
				return tc.kill
			}}
			res := runOne(t.Context(), env, checkOf("x", schedulerFailover), Options{Timeout: cmp.Or(tc.limit, 45*time.Second)}.withDefaults(), shared{})
			wantResult(t, res, tc.wantErr)
			if tc.wantErr == "" && res.Details["takeover"] == "" {
				t.Errorf("the takeover was not measured: %v", res.Details)
			}
		})
	}
}

func TestBindLogVerdict(t *testing.T) {
	kill := time.Now()
	killed := death{ordered: kill, done: kill.Add(3 * time.Second)}
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
		"event lost, death was slow":    {[]string{"n1"}, kill.Add(4 * time.Second), nil, ""},
		"event held back and lost":      {[]string{"n1"}, kill.Add(-10 * time.Second), nil, ""},
		"event missing long before":     {[]string{"n1"}, kill.Add(-time.Minute), nil, "no Scheduled event"},
		"event missing long afterwards": {[]string{"n1"}, kill.Add(time.Minute), nil, "pod-x is bound to n1, but no Scheduled event"},
		"event series":                  {[]string{"n1"}, kill, map[string][]binding{"x": {{reporter: "my-scheduler", action: "Binding", count: 2}}}, "bound 2 times"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			log := newBindLog()
			for _, n := range tc.nodes {
				log.see(pod("x", n), tc.at)
			}
			events := bindingsByUID(tc.events)
			if lacking := log.lacking(events, killed); (lacking > 0) != strings.Contains(tc.wantErr, "no Scheduled event") {
				t.Errorf("%d pods lack an event, want %q", lacking, tc.wantErr)
			}
			err := log.verdict(events, "my-scheduler", killed)
			if (err == nil) != (tc.wantErr == "") || (err != nil && !strings.Contains(err.Error(), tc.wantErr)) {
				t.Errorf("got %v, want %q", err, tc.wantErr)
			}
		})
	}
	if err := newBindLog().verdict(nil, "my-scheduler", killed); err == nil {
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
