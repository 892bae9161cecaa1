// SPDX-License-Identifier: Apache-2.0

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
	// leastGap is the least gap. A busy machine may cause shorter pauses.
	leastGap = time.Second
)

// pulse notices that the process did not run for a while, and so may not lead any more: it was stopped by a
// signal, its cgroup frozen, its virtual machine paused. The first goroutine that reads the clock after a gap
// notices it, so no time passes between the end of the gap and its detection.
type pulse struct {
	// gap is the shortest pause that counts as a suspension. No other replica can have started to lead in a shorter one.
	gap time.Duration
	// now is the clock, as the time that the process has lived and as the time of day: a suspended machine stops the
	// former.
	now func() (lived time.Duration, day time.Time)

	lived, day atomic.Int64
	// gaps counts the suspensions, resumed is when the end of the last one was noticed, as the time lived.
	gaps, resumed atomic.Int64
}

// newPulse returns the pulse of a process with this Lease. Without a Lease it never reports a suspension.
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

// beat records the time that was compared. Reading the clock a second time could hide a suspension between the two
// reads.
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
		// Store the gap first and the time second: a concurrent reader may then count the gap twice, but cannot miss it.
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
