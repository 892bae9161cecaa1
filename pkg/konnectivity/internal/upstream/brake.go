// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
)

// In upstream's protocol a peer sends the bytes of each connection as fast as they arrive,
// regardless of how fast the receiver takes them. A receiver that is only slower than its
// source would accumulate ConnLimit bytes after a while and lose its connection. While such
// a receiver catches up, the session keeps the stream's flow control window shut, except for
// a trickle. That alone would make all connections of the peer wait. Therefore the session
// opens the window further while another connection waits for an answer, and with any data
// that arrives for another connection. The busier the other connections are, the less they
// are delayed, and the sooner the slow connection reaches ConnLimit and is closed.

const (
	// trickle is how many bytes may arrive at once while a receiver catches up. It is more
	// than upstream has queued in gRPC ahead of what another connection sends next (64 KiB).
	// The queue of a Fairlead peer, maxInFlight and a chunk, takes two trickles.
	trickle = 2 * buffer.MaxSize
	// trickleMost limits how many trickle bytes may accumulate for data that has not arrived
	// yet.
	trickleMost = 1 << 20
	// trickleFirst is the delay before the first trickle for a connection that waits for an
	// answer. The delay doubles before each further trickle, up to trickleEvery.
	trickleFirst = time.Millisecond
	trickleEvery = 250 * time.Millisecond
	// trickleSoon replaces trickleEvery as long as something arrived or was sent less than
	// stirTime ago: more data may follow that no connection has requested.
	trickleSoon = 100 * time.Millisecond
	stirTime    = time.Second
	// trickleBlind replaces trickleEvery at an agent, which does not know what other
	// connections wait for: dials and requests arrive unsolicited.
	trickleBlind = 25 * time.Millisecond
	// standstill is how long a receiver that catches up may take nothing. After that it
	// counts as stalled, not as slow, and the other connections do not wait for it until it
	// has taken something.
	standstill = 500 * time.Millisecond
	// grantLeast is the least number of bytes that the peer is granted at once, unless fewer
	// are left.
	grantLeast = 16 << 10
	// askAgain is the time after which a connection without an answer may start to wait for
	// one again.
	askAgain = time.Second
	// dryLeast is the least number of bytes that must have arrived since the connection last
	// sent something for more to be expected.
	dryLeast = 4 << 10
	// brakeLeast is the smallest ConnLimit with which the brake is of use: data that the
	// window granted earlier still arrives.
	brakeLeast = 8 << 20
)

// brake is the state of a session's window; it is guarded by the session's mu.
type brake struct {
	count int // connections that need the window shut
	asks  int // connections that wait for an answer
	round int // current round of waiting; those of earlier rounds have waited for too long to count
	timer *time.Timer
	wait  time.Duration // duration that the timer was set to
	stir  time.Time     // when something last came or was sent
	look  time.Time     // when to check for stalled receivers
	owed  int           // bytes by which the window is still to be opened
	due   int           // how many of these, and of bytes still to arrive, may be granted at once
}

// lag is the state of a connection that the brake needs.
type lag struct {
	braking bool      // the window stays shut for its receiver
	took    bool      // the receiver has taken something since the last check
	stands  bool      // the receiver has taken nothing for standstill
	asks    bool      // it waits for an answer
	round   int       // brake.round when it began to wait
	asked   time.Time // when it began to wait
	run     int       // bytes that have arrived since it last sent something
}

// brakeLocked shuts the stream's window for a receiver that holds more than half of
// ConnLimit.
func (c *Conn) brakeLocked() {
	s, b := c.s, &c.s.brake
	if s.cfg.Pause || s.cfg.ConnLimit < brakeLeast {
		return
	}
	if c.lag.braking || c.lag.stands || c.held <= s.cfg.ConnLimit/2 {
		return
	}
	c.lag.braking, c.lag.took = true, true // counts as progress until the next check but one, at the latest
	c.answeredLocked()
	if b.count++; b.count == 1 {
		b.look = time.Now().Add(standstill)
		b.wait = trickleFirst // other connections may be waiting already
		b.timer = time.AfterFunc(b.wait, s.tick)
	}
}

// tick grants a trickle while receivers have not caught up.
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

// mostLocked returns the longest delay before the next trickle.
func (s *Session) mostLocked() time.Duration {
	switch {
	case !s.server:
		return trickleBlind
	case time.Since(s.brake.stir) < stirTime:
		return trickleSoon
	}
	return trickleEvery
}

// lookLocked stops keeping the window shut for stalled receivers.
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

// busyLocked reports whether the receiver still holds enough data to continue with.
func (c *Conn) busyLocked() bool { return c.held > maxInFlight }

// askLocked notes that the connection waits for data: it has sent something that may be
// answered, or its receiver has taken everything of a transfer that may continue.
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

// cameLocked notes that n bytes arrived, after which more may follow. It is called before
// the receiver holds them.
func (c *Conn) cameLocked(n int) {
	c.lag.run += n
	c.replied = c.replied || c.leftLocked()
	if b := &c.s.brake; b.count > 0 && !c.busyLocked() {
		b.stir = time.Now()
		b.trickle(4 * n) // the other connections get some of it
	}
	c.answeredLocked()
}

// dryLocked notes that the receiver has taken all it held, after which more may arrive.
func (c *Conn) dryLocked() {
	if c.lag.run >= dryLeast && !c.gotEnd && !c.dead {
		c.askLocked()
	}
}

// answeredLocked notes that the connection no longer waits for an answer.
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

// tookLocked notes that the receiver has taken something. If it now holds clearly less,
// tookLocked no longer keeps the window shut for it. The caller calls repay after it has
// unlocked mu.
func (c *Conn) tookLocked() {
	c.lag.took, c.lag.stands = true, false
	if c.held <= c.s.cfg.ConnLimit/8*3 {
		c.releaseLocked()
	}
}

// releaseLocked notes that a connection no longer needs the window shut.
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

// credit notes that n bytes arrived, by which the stream's window may be opened.
func (s *Session) credit(n int) {
	s.mu.Lock()
	s.brake.owed += n
	s.mu.Unlock()
	s.repay(false)
}

// repay opens the window by the bytes that it was kept shut by, as far as they are due. If
// no connection needs the window shut, it opens the window by all of them. Otherwise it
// opens the window by less than grantLeast only if no more are owed, or if now is true.
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
