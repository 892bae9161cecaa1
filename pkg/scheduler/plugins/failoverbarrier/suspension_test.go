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

// machine is a clock that is moved, and a Lease.
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

func leading(t *testing.T, a *answers) (*machine, *plugintest.Cluster) {
	t.Helper()
	m := newMachine("us")
	c := startWith(t, 300*time.Millisecond, a, newPulse(&Lease{Slack: 3 * time.Second}, m.now), m.read, pod("a", "n"))
	eventually(t, "the barrier to open", func() bool { said, _ := c.Filter(t, pod("new", "")); return said["n"] == "" })
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
			eventually(t, "the other leader to be seen", func() bool {
				said, _ = c.Filter(t, pod("new", ""))
				return strings.Contains(said["n"], `"another" holds the Lease, not "us"`)
			})
			if n := len(a.asked()); n != 1 {
				t.Errorf("listed %d times before it leads", n)
			}
			m.renew("us")
			eventually(t, "the Lease's return to be seen", func() bool {
				said, _ = c.Filter(t, pod("new", ""))
				return strings.Contains(said["n"], "was last renewed at")
			})
			m.pass(2*time.Second, 2*time.Second)
			m.renew("us")
			eventually(t, "the barrier to open", func() bool { said, _ := c.Filter(t, pod("new", "")); return said["n"] == "" })
			if n := len(a.asked()); n != 2 {
				t.Errorf("listed %d times", n)
			}
		})
	}
}

// TestNotSuspended: what nobody can have come to lead in is no suspension.
func TestNotSuspended(t *testing.T) {
	m, c := leading(t, says(bound("a"), bound("a", "never")))
	for range 3 {
		m.pass(2900*time.Millisecond, 2900*time.Millisecond)
		if said, _ := c.Filter(t, pod("new", "")); said["n"] != "" {
			t.Fatal(said)
		}
		p := c.Plugin.(*Plugin).pulse
		p.lived.Store(m.lived.Load())
		p.day.Store(m.day.Load())
	}
}

// TestChosenBefore: what was chosen before a suspension is not bound after it, even if the barrier is open again.
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
			eventually(t, "the barrier to open", func() bool {
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
