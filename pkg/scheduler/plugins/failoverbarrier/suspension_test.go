// SPDX-License-Identifier: Apache-2.0

package failoverbarrier

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/plugintest"
)

// machine is a clock that the test moves, and a Lease.
type machine struct {
	lived, day atomic.Int64
	holder     atomic.Pointer[string]
	renewed    atomic.Int64
}

func newMachine(holder string) *machine {
	m := &machine{}
	m.day.Store(int64(time.Hour))
	m.renewed.Store(int64(time.Hour))
	m.holder.Store(&holder)
	return m
}

func (m *machine) now() (time.Duration, time.Time) {
	return time.Duration(m.lived.Load()), time.Unix(0, m.day.Load())
}

func (m *machine) pass(lived, day time.Duration) {
	m.lived.Add(int64(lived))
	m.day.Add(int64(day))
}

func (m *machine) renew(holder string) {
	m.holder.Store(&holder)
	m.renewed.Store(m.day.Load())
}

func (m *machine) read(context.Context) (string, time.Time, error) {
	return *m.holder.Load(), time.Unix(0, m.renewed.Load()), nil
}

// elected is a leader that has not had a pod yet.
func elected(t *testing.T, a *answers, m *machine) *plugintest.Cluster {
	t.Helper()
	lease := &Lease{Slack: 3 * time.Second, Grace: 14 * time.Second}
	return startWith(t, 300*time.Millisecond, a, newTenure(lease, m.read, newPulse(lease, m.now)), pod("a", "n"))
}

func leading(t *testing.T, a *answers) (*machine, *plugintest.Cluster) {
	t.Helper()
	m := newMachine("us")
	c := elected(t, a, m)
	plugintest.Eventually(t, "the barrier to open", func() bool { said, _ := c.Filter(t, pod("new", "")); return said["n"] == "" })
	return m, c
}

// TestResumed: a leader that was suspended binds nothing before it has shown that it still leads, and knows what another
// has bound meanwhile.
func TestResumed(t *testing.T) {
	for name, gap := range map[string][2]time.Duration{
		"stopped process":   {20 * time.Second, 20 * time.Second},
		"suspended machine": {0, 20 * time.Second},
		"set back clock":    {20 * time.Second, -time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			a := says(bound("a"))
			m, c := leading(t, a)
			m.pass(gap[0], gap[1])
			said, _ := c.Filter(t, pod("new", ""))
			if !strings.Contains(said["n"], errLease.Error()) {
				t.Errorf("resumed, not renewed: says %q", said["n"])
			}
			m.renew("another")
			said = nil
			plugintest.Eventually(t, "the other leader to be seen", func() bool {
				said, _ = c.Filter(t, pod("new", ""))
				return strings.Contains(said["n"], `"another" holds the Lease, not "us"`)
			})
			if n := len(a.asked()); n != 1 {
				t.Errorf("listed %d times before it leads", n)
			}
			m.renew("us")
			plugintest.Eventually(t, "the Lease's return to be seen", func() bool {
				said, _ = c.Filter(t, pod("new", ""))
				return strings.Contains(said["n"], "was last renewed at")
			})
			m.pass(2*time.Second, 2*time.Second)
			m.renew("us")
			plugintest.Eventually(t, "the barrier to open", func() bool { said, _ := c.Filter(t, pod("new", "")); return said["n"] == "" })
			if n := len(a.asked()); n != 2 {
				t.Errorf("listed %d times", n)
			}
		})
	}
}

// TestNotSuspended: a pause so short that no other replica can have started to lead does not count as a suspension.
func TestNotSuspended(t *testing.T) {
	m, c := leading(t, says(bound("a"), bound("a", "never")))
	for range 3 {
		m.pass(2900*time.Millisecond, 2900*time.Millisecond)
		if said, _ := c.Filter(t, pod("new", "")); said["n"] != "" {
			t.Fatal(said)
		}
		c.Plugin.(*Plugin).pulse.beat()
	}
}

// TestChosenBefore: a pod whose node was chosen before a suspension is not bound after it, even if the barrier is open
// again.
func TestChosenBefore(t *testing.T) {
	volume := st.MakePod().Name("new").Namespace("default").UID("new").SchedulerName(plugintest.Profile).PVC("claim").Obj()
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want fwk.Code
	}{
		"nothing to prepare": {pod("new", ""), fwk.Skip},
		"with a volume":      {volume, fwk.Success},
	} {
		t.Run(name, func(t *testing.T) {
			m, c := leading(t, says(bound("a")))
			_, state := c.Filter(t, tc.pod)
			p := c.Plugin.(*Plugin)
			if _, status := p.PreBindPreFlight(t.Context(), state, tc.pod, "n"); status.Code() != tc.want {
				t.Errorf("before: %v, want %v", status, tc.want)
			}
			if status := p.PreBind(t.Context(), state, tc.pod, "n"); !status.IsSuccess() {
				t.Errorf("before: %v", status)
			}
			m.pass(20*time.Second, 20*time.Second)
			_, preflight := p.PreBindPreFlight(t.Context(), state, tc.pod, "n")
			if bind := p.PreBind(t.Context(), state, tc.pod, "n"); preflight.Code() != fwk.Error || bind.Code() != fwk.Error {
				t.Errorf("after: %v and %v", preflight, bind)
			}
			plugintest.Eventually(t, "the barrier to open", func() bool {
				m.renew("us")
				m.pass(time.Millisecond, time.Millisecond)
				said, _ := c.Filter(t, pod("other", ""))
				return said["n"] == ""
			})
			if status := p.PreBind(t.Context(), state, tc.pod, "n"); status.Code() != fwk.Error {
				t.Errorf("with the barrier open again: %v", status)
			}
			_, state = c.Filter(t, tc.pod)
			if status := p.PreBind(t.Context(), state, tc.pod, "n"); !status.IsSuccess() {
				t.Errorf("chosen after it: %v", status)
			}
		})
	}
}

// TestIdleLeaderResumed: a leader that had nothing to bind before its suspension does not take another holder's
// identity for its own.
func TestIdleLeaderResumed(t *testing.T) {
	a := says(bound("a"))
	m := newMachine("us")
	c := elected(t, a, m)
	m.pass(20*time.Second, 20*time.Second)
	m.renew("another")
	for range 3 {
		said, _ := c.Filter(t, pod("new", ""))
		if !strings.Contains(said["n"], "would exit within 14s") {
			t.Fatalf("resumed: says %q", said["n"])
		}
		c.Plugin.(*Plugin).pulse.beat()
		m.pass(time.Second, time.Second)
		m.renew("another")
	}
	if n := len(a.asked()); n > 0 {
		t.Errorf("listed %d times before it leads", n)
	}
	// A process that does not lead has exited by then.
	m.renew("us")
	plugintest.Eventually(t, "the barrier to open", func() bool {
		m.pass(time.Second, time.Second)
		c.Plugin.(*Plugin).pulse.beat()
		said, _ := c.Filter(t, pod("new", ""))
		return said["n"] == ""
	})
}

// TestSuspendedWhileAsking: a read of the Lease does not count if the process was suspended during the read.
func TestSuspendedWhileAsking(t *testing.T) {
	m := newMachine("us")
	lease := &Lease{Slack: 3 * time.Second, Grace: 14 * time.Second}
	read := func(ctx context.Context) (string, time.Time, error) {
		m.pass(20*time.Second, 20*time.Second)
		m.renew("another")
		return m.read(ctx)
	}
	leads := newTenure(lease, read, newPulse(lease, m.now))
	if err := leads.proof(0)(t.Context()); err == nil || leads.holder != "" {
		t.Errorf("%v, holder %q", err, leads.holder)
	}
}

// TestSuspendedBetweenLooks: a suspension right after a look at the clock is seen by the next one.
func TestSuspendedBetweenLooks(t *testing.T) {
	m := newMachine("us")
	suspend := false
	p := newPulse(&Lease{Slack: 3 * time.Second}, func() (time.Duration, time.Time) {
		lived, day := m.now()
		if suspend {
			suspend = false
			m.pass(20*time.Second, 20*time.Second)
		}
		return lived, day
	})
	suspend = true
	p.beat()
	if gaps := p.look(); gaps != 1 {
		t.Errorf("%d suspensions were noticed", gaps)
	}
	p.beat()
	if gaps := p.look(); gaps != 1 {
		t.Errorf("%d suspensions after a beat", gaps)
	}
}

// TestAskedOnce: later lists of a barrier that stays closed need no further proof, which might never come.
func TestAskedOnce(t *testing.T) {
	a := says(bound("a", "gone"), bound("a"))
	c := elected(t, a, newMachine("us"))
	plugintest.Eventually(t, "the barrier to open", func() bool {
		said, _ := c.Filter(t, pod("new", ""))
		if strings.Contains(said["n"], errLease.Error()) {
			t.Fatal(said)
		}
		return said["n"] == ""
	})
}
