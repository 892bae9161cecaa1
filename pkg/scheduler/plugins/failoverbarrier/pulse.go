package failoverbarrier

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

const (
	// beat is the pause between looks at the clocks.
	beat = 200 * time.Millisecond
	// leastGap is no suspension on a machine that is busy.
	leastGap = time.Second
)

// pulse notices that the process did not run for a while, and so may not lead any more: it was stopped by a signal, its
// cgroup frozen, its virtual machine paused. Whoever looks first after a gap notices: there is no moment between the end
// of the gap and the notice.
type pulse struct {
	// gap is what counts as a suspension. Nobody else can have come to lead in a shorter one.
	gap time.Duration
	// now is the clock, as the time that the process has lived and as the time of day: a suspended machine stops the
	// former.
	now func() (lived time.Duration, day time.Time)

	lived, day atomic.Int64
	// gaps counts the suspensions.
	gaps atomic.Int64
}

// newPulse is for a process with this Lease; without one it never misses a beat.
func newPulse(lease *Lease, now func() (time.Duration, time.Time)) *pulse {
	p := &pulse{now: now, gap: math.MaxInt64}
	if lease != nil {
		p.gap = max(leastGap, lease.Slack)
	}
	lived, day := now()
	p.lived.Store(int64(lived))
	p.day.Store(day.UnixNano())
	return p
}

// clock is the machine's.
func clock() func() (time.Duration, time.Time) {
	began := time.Now()
	return func() (time.Duration, time.Time) {
		now := time.Now()
		return now.Sub(began), now
	}
}

// run looks at the clock until ctx ends.
func (p *pulse) run(ctx context.Context) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.look()
			lived, day := p.now()
			p.lived.Store(int64(lived))
			p.day.Store(day.UnixNano())
		}
	}
}

// look says how many suspensions there were until now.
func (p *pulse) look() int64 {
	lived, day := p.now()
	if int64(lived)-p.lived.Load() > int64(p.gap) || day.UnixNano()-p.day.Load() > int64(p.gap) {
		// The gap first, the time second: another one who looks in between counts it again, rather than not at all.
		p.gaps.Add(1)
		p.lived.Store(int64(lived))
		p.day.Store(day.UnixNano())
	}
	return p.gaps.Load()
}
