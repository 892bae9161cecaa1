// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

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
		res := runOne(t.Context(), newStubAPI(t).env(t), c, Options{}.withDefaults(), shared{})
		if res.Status != Skipped || res.Error == "" {
			t.Errorf("%s: got %s %q", c.ID, res.Status, res.Error)
		}
	}
}

// TestSchedulerPending proves that the check passes if, without a second
// scheduler, only the third pod of the documentation's example stays Pending
// and untouched, and that it sees each way in which this can go wrong.
// It observes SCHED-41 of docs/requirements.md.
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
			limit := 10 * time.Second
			if tc.wantErr == "" {
				limit = time.Minute
			}
			res := runOne(t.Context(), env, checkOf("x", schedulerPending), Options{Timeout: limit}.withDefaults(), shared{})
			wantResult(t, res, tc.wantErr)
			if parts.started.Load() == 0 {
				t.Error("the second scheduler was not started again")
			}
		})
	}
}
