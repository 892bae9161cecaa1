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
	// gaps counts the suspensions, resumed is when the end of the last one was noticed, as the time lived.
	gaps, resumed atomic.Int64
}

// newPulse is for a process with this Lease; without one it never misses a beat.
func newPulse(lease *Lease, now func() (time.Duration, time.Time)) *pulse {
	p := &pulse{now: now, gap: math.MaxInt64}
	if lease != nil {
		p.gap = max(leastGap, lease.Slack)
	}
	p.note(now())
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
			p.beat()
		}
	}
}

// beat notes the time. It is the one that was compared: a suspension between two looks at the clock would be noted away.
func (p *pulse) beat() {
	lived, day := p.now()
	p.compare(lived, day)
	p.note(lived, day)
}

// look says how many suspensions there were until now.
func (p *pulse) look() int64 {
	p.compare(p.now())
	return p.gaps.Load()
}

func (p *pulse) compare(lived time.Duration, day time.Time) {
	if int64(lived)-p.lived.Load() > int64(p.gap) || day.UnixNano()-p.day.Load() > int64(p.gap) {
		// The gap first, the time second: another one who looks in between counts it again, rather than not at all.
		p.resumed.Store(int64(lived))
		p.gaps.Add(1)
		p.note(lived, day)
	}
}

func (p *pulse) note(lived time.Duration, day time.Time) {
	p.lived.Store(int64(lived))
	p.day.Store(day.UnixNano())
}

// awake is how long the process has run without a suspension that was noticed; without one, as long as it lives.
func (p *pulse) awake() time.Duration {
	lived, _ := p.now()
	return lived - time.Duration(p.resumed.Load())
}
