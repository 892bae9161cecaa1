package link

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/sock"
)

// ErrDead says that the peer was silent for too long.
var ErrDead = errors.New("peer is silent")

// tickEvery is the time between looks at whether the peer is there, and pauseAfter
// the time without one after which this process must have been stopped itself.
const (
	tickEvery  = time.Second
	pauseAfter = 4 * tickEvery
)

// life is what a link knows about its peer being there. All but the timer belongs to
// whoever ticks.
type life struct {
	timer    *time.Timer   // guarded by Link.mu
	ticked   time.Time     // when it was last looked
	reads    int64         // of the batchConn, at the last tick
	sent     sock.Delivery // at the last tick of a silence
	moved    int64         // when the peer last took what had waited, nanoseconds since the link's start
	measured bool          // sent holds something
}

func (f *life) stop() {
	if f.timer != nil {
		f.timer.Stop()
	}
}

// watch ticks until the link ends. It does so on a timer, not on the writer's
// goroutine: that waits for as long as a dead peer takes nothing.
func (l *Link) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.life.ticked = time.Now()
		l.life.timer = time.AfterFunc(tickEvery, l.beat)
	}
}

// farewell is for how long an orderly end waits for a peer that takes nothing. TLS says
// goodbye behind what is being written, and would wait 5 s for that.
const farewell = 300 * time.Millisecond

// hangUp closes the connection in an orderly way, or by a reset if that is stuck.
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
			sock.Abort(l.nc)
			return
		}
		taken = now
	}
}

// Taken is the number of bytes of this link that the peer's kernel has, or 0 where that
// is not known.
func (l *Link) Taken() uint64 {
	if l.bc == nil {
		return 0
	}
	d, _ := sock.DeliveryOf(l.bc.Conn)
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

// tick pings a silent peer and gives up a dead one. paused says that this process
// itself was stopped, which is not the peer's fault.
func (l *Link) tick(paused bool) {
	now := int64(time.Since(l.start))
	if l.bc != nil {
		sock.ShortQueues(l.bc.Conn)
		if n := l.bc.reads.Load(); n != l.life.reads { // also within a large frame on a slow line
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

// moves tells whether the peer's kernel has taken some of what waited at the last
// tick, and more waits: on a slow line the ping is behind that, and the peer cannot
// have answered. It does not tell of a line that takes all there is at once: there a
// frozen peer's kernel takes the ping, too, and nobody answers.
func (l *Link) moves() bool {
	if l.bc == nil {
		return false
	}
	last, measured := l.life.sent, l.life.measured
	l.life.sent, l.life.measured = sock.DeliveryOf(l.bc.Conn)
	if !measured || !l.life.measured {
		return false
	}
	took := l.life.sent.Acked - last.Acked
	return took > 0 && last.Waiting > 0 && (took < last.Waiting || l.life.sent.Unsent > 0)
}

// answerWithin is the time in which something comes behind a ping.
const answerWithin = time.Second

// Silence tells for how long nothing was received, and whether an answer is
// overdue: a ping was sent more than a second ago and nothing came since.
func (l *Link) Silence() (d time.Duration, overdue bool) {
	now := int64(time.Since(l.start))
	p, heard := l.pinged.Load(), l.lastRecv.Load()
	return time.Duration(now - heard), p != 0 && heard < p && now-p > int64(answerWithin)
}

// Probe sends a ping unless one is open, so that Silence soon tells whether the
// peer is there. One that was not answered in time while other frames came does not
// count as open: a peer with much to say may leave the answer out.
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
