// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
)

// ErrDead reports that nothing was received from the peer for too long.
var ErrDead = errors.New("peer is silent")

// tickEvery is the time between checks whether the peer is alive. pauseAfter is the
// time without such a check after which this process must have been stopped itself.
const (
	tickEvery  = time.Second
	pauseAfter = 4 * tickEvery
)

// life is the state of a link's check whether the peer is alive. Only the goroutine
// that runs the check uses the fields, except timer.
type life struct {
	timer    *time.Timer   // guarded by Link.mu
	ticked   time.Time     // when the last check ran
	reads    int64         // reads of the batchConn, at the last tick
	sent     netx.Delivery // delivery at the last tick without received data
	moved    int64         // when the peer last took waiting data, nanoseconds since the link's start
	measured bool          // sent holds something
}

func (f *life) stop() {
	if f.timer != nil {
		f.timer.Stop()
	}
}

// watch runs the check until the link ends. It uses a timer, not the writer's
// goroutine, which blocks for as long as a dead peer takes nothing.
func (l *Link) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.life.ticked = time.Now()
		l.life.timer = time.AfterFunc(tickEvery, l.beat)
	}
}

// farewell is how long an orderly close waits for a peer that takes nothing. TLS sends
// its close alert after the data that is being written, and would wait 5 s for that.
const farewell = 300 * time.Millisecond

// hangUp closes the connection in an orderly way, or with a reset if that blocks.
func (l *Link) hangUp() {
	closed := make(chan struct{})
	go l.hurry(closed)
	_ = l.nc.Close()
	close(closed)
}

func (l *Link) hurry(closed <-chan struct{}) {
	tick := time.NewTicker(farewell)
	defer tick.Stop()
	for taken := l.Taken(); ; {
		select {
		case <-closed:
			return
		case <-tick.C:
		}
		now := l.Taken()
		if now == taken {
			netx.Abort(l.nc)
			return
		}
		taken = now
	}
}

// Taken returns the number of bytes of this link that the peer's kernel has
// acknowledged, or 0 if that is not known.
func (l *Link) Taken() uint64 {
	if l.bc == nil {
		return 0
	}
	d, _ := netx.DeliveryOf(l.bc.Conn)
	return d.Acked
}

func (l *Link) beat() {
	now := time.Now()
	paused := now.Sub(l.life.ticked) > pauseAfter
	l.life.ticked = now
	l.tick(paused)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.life.timer.Reset(tickEvery)
	}
}

// tick pings a silent peer and closes the link to a dead one. paused reports that this
// process itself was stopped, which is not the peer's fault.
func (l *Link) tick(paused bool) {
	now := int64(time.Since(l.start))
	if l.bc != nil {
		netx.ShortQueues(l.bc.Conn)
		if n := l.bc.reads.Load(); n != l.life.reads { // also in the middle of a large frame on a slow line
			l.life.reads = n
			l.lastRecv.Store(now)
		}
	}
	if paused {
		l.lastRecv.Store(now)
		l.pinged.Store(0)
	}
	if l.measured.Load() < enoughRTTs {
		l.Probe()
	}
	heard := l.lastRecv.Load()
	silent := time.Duration(now - heard)
	if silent < l.cfg.PingAfter {
		l.life.measured = false
		return
	}
	if l.moves() {
		l.life.moved = now
	}
	if silent >= l.cfg.DeadAfter && time.Duration(now-l.life.moved) >= l.cfg.DeadAfter {
		_ = l.fail(ErrDead) // Run returns it
		return
	}
	l.Probe()
}

// moves reports whether the peer's kernel has taken some of the data that waited at the
// last tick, and more data waits: on a slow line the ping is queued after that data,
// and the peer cannot have answered. It cannot detect a live peer on a line that takes
// all data at once: there the kernel of a frozen peer takes the ping, too, although its
// process does not answer.
func (l *Link) moves() bool {
	if l.bc == nil {
		return false
	}
	last, measured := l.life.sent, l.life.measured
	l.life.sent, l.life.measured = netx.DeliveryOf(l.bc.Conn)
	if !measured || !l.life.measured {
		return false
	}
	took := l.life.sent.Acked - last.Acked
	return took > 0 && last.Waiting > 0 && (took < last.Waiting || l.life.sent.Unsent > 0)
}

// answerWithin is the time within which data must arrive after a ping.
const answerWithin = time.Second

// Silence returns how long nothing was received, and whether an answer is overdue: a
// ping was sent more than a second ago and nothing was received since.
func (l *Link) Silence() (d time.Duration, overdue bool) {
	now := int64(time.Since(l.start))
	p, heard := l.pinged.Load(), l.lastRecv.Load()
	return time.Duration(now - heard), p != 0 && heard < p && now-p > int64(answerWithin)
}

// Probe sends a ping unless one is unanswered, so that Silence soon reports whether the
// peer is alive. A ping that was not answered in time while other frames arrived does
// not count as unanswered: a peer with much to send may omit the answer.
func (l *Link) Probe() {
	now := max(1, int64(time.Since(l.start)))
	open := l.pinged.Load()
	if open != 0 && (l.lastRecv.Load() < open || now-open <= int64(answerWithin)) || !l.pinged.CompareAndSwap(open, now) {
		return
	}
	var t [8]byte
	binary.BigEndian.PutUint64(t[:], uint64(now))
	l.control(typePing, string(t[:]))
}
