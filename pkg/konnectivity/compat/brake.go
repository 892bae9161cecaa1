package compat

import (
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
)

// The reference protocol lets a peer send the bytes of each connection as fast as they
// come, however fast they are taken: a receiver that is merely slower than its source
// would hold ConnLimit after a while and lose its connection. While such a receiver
// catches up, the stream's window stays shut, but for a trickle. That would make all
// connections of the peer wait, so more comes while another connection waits for an answer,
// and with whatever comes for one: the busier the others are, the less are they held up,
// and the sooner does the slow one reach ConnLimit and is closed.

const (
	// trickle is how many bytes may come at once behind a receiver that catches up. It is
	// more than upstream has queued in gRPC ahead of what another connection sends next
	// (64 KiB). What ours has queued, maxInFlight and a chunk, takes two of them.
	trickle = 2 * buf.MaxSize
	// trickleMost bounds how many of these are kept for bytes that are still to come.
	trickleMost = 1 << 20
	// trickleFirst is when the first comes for a connection that waits for an answer, and
	// twice as long passes before each other, up to trickleEvery.
	trickleFirst = time.Millisecond
	trickleEvery = 250 * time.Millisecond
	// trickleSoon stands for trickleEvery for as long as something came or was sent less than
	// stirTime ago: there may be more that nobody has asked for.
	trickleSoon = 100 * time.Millisecond
	stirTime    = time.Second
	// trickleBlind is that for an agent, which does not know what others wait for: dials and
	// requests come by themselves.
	trickleBlind = 25 * time.Millisecond
	// standstill is for how long a receiver that catches up may take nothing. Then it is
	// not merely slow, and nobody waits for it until it has taken something.
	standstill = 500 * time.Millisecond
	// grantLeast is how many bytes the peer is told of at once, unless there are no more.
	grantLeast = 16 << 10
	// askAgain is when a connection without an answer may begin that again.
	askAgain = time.Second
	// dryLeast is how many bytes come at least, behind the last that went the other way, where
	// there may be more.
	dryLeast = 4 << 10
	// brakeLeast is the least ConnLimit with which all that is of use: what the window has
	// granted before comes nevertheless.
	brakeLeast = 8 << 20
)

// brake is the state of a session's window; it is guarded by the session's mu.
type brake struct {
	count int // connections that want it shut
	asks  int // connections that wait for an answer
	round int // of these: those of earlier ones have waited for too long to be heeded
	timer *time.Timer
	wait  time.Duration // that the timer was set to
	stir  time.Time     // when something last came or was sent
	look  time.Time     // when to look for receivers that stand still
	owed  int           // bytes by which the window is to be opened
	due   int           // of these and of what comes, at once
}

// lag is what the brake knows of a connection.
type lag struct {
	braking bool      // the window stays shut for its receiver
	took    bool      // which has taken something since that was looked at
	stands  bool      // which has taken nothing for too long
	asks    bool      // it waits for an answer
	round   int       // of brake's
	asked   time.Time // since when
	run     int       // bytes that have come since it last sent something
}

// brakeLocked shuts the stream's window for a receiver that holds half of what it may.
func (c *Conn) brakeLocked() {
	s, b := c.s, &c.s.brake
	if s.cfg.Pause || s.cfg.ConnLimit < brakeLeast {
		return
	}
	if c.lag.braking || c.lag.stands || c.held <= s.cfg.ConnLimit/2 {
		return
	}
	c.lag.braking, c.lag.took = true, true // until the next look but one, at the latest
	c.answeredLocked()
	if b.count++; b.count == 1 {
		b.look = time.Now().Add(standstill)
		b.wait = trickleFirst // for what others may wait for already
		b.timer = time.AfterFunc(b.wait, s.tick)
	}
}

// tick lets something through behind receivers that have not caught up.
func (s *Session) tick() {
	s.mu.Lock()
	if b := &s.brake; b.count > 0 && !s.closed {
		b.trickle(trickle)
		most := s.mostLocked()
		if b.wait >= most {
			b.asks = 0
			b.round++
		}
		b.setTimer(min(2*b.wait, most))
		s.lookLocked()
	}
	s.mu.Unlock()
	s.repay(true)
}

// mostLocked is the longest that passes to the next trickle.
func (s *Session) mostLocked() time.Duration {
	switch {
	case !s.server:
		return trickleBlind
	case time.Since(s.brake.stir) < stirTime:
		return trickleSoon
	}
	return trickleEvery
}

// lookLocked lets go of receivers that stand still.
func (s *Session) lookLocked() {
	if time.Now().Before(s.brake.look) {
		return
	}
	s.brake.look = time.Now().Add(standstill)
	for _, c := range s.conns {
		if c.lag.braking && !c.lag.took {
			c.lag.stands = true
			c.releaseLocked()
		}
		c.lag.took = false
	}
}

func (b *brake) trickle(n int) { b.due = min(b.due+n, trickleMost) }

func (b *brake) setTimer(d time.Duration) {
	b.wait = d
	b.timer.Reset(d)
}

// busyLocked says whether the receiver has enough to go on with.
func (c *Conn) busyLocked() bool { return c.held > maxInFlight }

// askLocked notes that something was sent that may be answered, or that a receiver has taken
// all of what may go on.
func (c *Conn) askLocked() {
	b := &c.s.brake
	if b.count == 0 || c.busyLocked() || c.asksLocked() && time.Since(c.lag.asked) < askAgain {
		return
	}
	if !c.asksLocked() {
		b.asks++
	}
	b.stir = time.Now()
	c.lag.asks, c.lag.round, c.lag.asked = true, b.round, b.stir
	if b.wait > trickleFirst {
		b.setTimer(trickleFirst)
	}
}

func (c *Conn) asksLocked() bool { return c.lag.asks && c.lag.round == c.s.brake.round }

// cameLocked notes that n bytes came, behind which there may be more. It is before the
// receiver holds them.
func (c *Conn) cameLocked(n int) {
	c.lag.run += n
	c.replied = c.replied || c.leftLocked()
	if b := &c.s.brake; b.count > 0 && !c.busyLocked() {
		b.stir = time.Now()
		b.trickle(4 * n) // the others get some of it
	}
	c.answeredLocked()
}

// dryLocked notes that the receiver has taken all it held, behind which there may be more.
func (c *Conn) dryLocked() {
	if c.lag.run >= dryLeast && !c.gotEnd && !c.dead {
		c.askLocked()
	}
}

// answeredLocked says that the connection waits for no answer.
func (c *Conn) answeredLocked() {
	b := &c.s.brake
	if !c.asksLocked() {
		return
	}
	c.lag.asks = false
	if b.asks--; b.asks == 0 && b.count > 0 {
		b.setTimer(min(trickleSoon, c.s.mostLocked()))
	}
}

// tookLocked notes that the receiver has taken something, and opens the window for one that
// holds clearly less. The caller goes on with repay when it has let go of mu.
func (c *Conn) tookLocked() {
	c.lag.took, c.lag.stands = true, false
	if c.held <= c.s.cfg.ConnLimit/8*3 {
		c.releaseLocked()
	}
}

// releaseLocked says that a connection does not need the window shut.
func (c *Conn) releaseLocked() {
	b := &c.s.brake
	if !c.lag.braking {
		return
	}
	c.lag.braking = false
	if b.count--; b.count == 0 {
		b.timer.Stop()
	}
}

// credit says that n bytes have come, by which the stream's window may be opened.
func (s *Session) credit(n int) {
	s.mu.Lock()
	s.brake.owed += n
	s.mu.Unlock()
	s.repay(false)
}

// repay opens the window by what it was kept shut by, as far as that is due: by all where
// nobody needs it shut, and else by little only if that is all or it has to be now.
func (s *Session) repay(now bool) {
	s.mu.Lock()
	b := &s.brake
	shut := b.count > 0
	if !shut {
		b.due = b.owed
	}
	n := min(b.owed, b.due)
	if shut && !now && n < grantLeast && n < b.owed {
		n = 0
	}
	b.owed -= n
	b.due -= n
	s.mu.Unlock()
	switch {
	case n == 0:
	case shut:
		s.st.Grant(n)
	default:
		s.st.Consumed(n)
	}
}
