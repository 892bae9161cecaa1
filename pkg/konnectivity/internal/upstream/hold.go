// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
)

// In upstream's protocol a peer sends the bytes of each connection as fast as they arrive,
// regardless of how fast the receiver takes them. A receiver that is only slower than its
// source would accumulate ConnBuffer bytes after a while and lose its connection. While a
// receiver holds more than half of that, the session holds back the stream's flow control
// window, and opens it by a small increment only: at intervals, which are short while another
// connection waits for an answer, and with any data that arrives for another connection. The
// busier the other connections are, the sooner the slow one reaches ConnBuffer and is reset.

const (
	// increment is how many bytes the window opens by at each interval. It is more than
	// upstream has queued in gRPC ahead of what another connection sends next (64 KiB). The
	// queue of a Fairlead peer, maxInFlight and a chunk, takes two increments.
	increment = 2 * buffer.MaxSize
	// dueMost limits what may accumulate for data that has not arrived yet.
	dueMost = 1 << 20
	// interval is the time between two increments at a server, intervalBlind at an agent. An
	// agent does not know what other connections wait for: dials and requests arrive
	// unsolicited. A connection that starts to wait for an answer makes the time
	// intervalFirst, which doubles with each increment until the answer comes.
	interval      = 100 * time.Millisecond
	intervalBlind = 25 * time.Millisecond
	intervalFirst = time.Millisecond
	// askAgain is the time after which a connection that got no answer, because nothing was to
	// be answered, starts to wait once more when it sends something.
	askAgain = time.Second
	// standstill is how long a slow receiver may take nothing. After that the other
	// connections do not wait for it until it has taken something.
	standstill = 500 * time.Millisecond
	// drainedLeast is the least number of bytes that must have arrived since the connection last
	// sent something for more to be expected.
	drainedLeast = 4 << 10
	// holdLeast is the smallest ConnBuffer with which it helps to hold the window back: data
	// that the window granted earlier still arrives.
	holdLeast = 8 << 20
)

// hold is the state of a session's window; it is guarded by the session's mu.
type hold struct {
	conns []*Conn // those that need the window held back
	timer *time.Timer
	wait  time.Duration // that the timer was set to
	owed  int           // received bytes by which the window is still to be opened
	asks  int           // connections that wait for an answer
	due   int           // how many of these, and of bytes still to arrive, may be granted
}

func (h *hold) addDue(n int) { h.due = min(h.due+n, dueMost) }

func (h *hold) setTimer(d time.Duration) {
	h.wait = d
	h.timer.Reset(d)
}

// need is what a connection needs of the window. A receiver for which the window is held
// back has plenty of data, so its connection does not wait for an answer.
//
//	need        next        when
//	needNone    needAnswer  it starts to wait for data (askLocked)
//	needAnswer  needNone    data comes, or the connection ends (answeredLocked)
//	either      needHold    its receiver has more than half of ConnBuffer (holdWindowLocked)
//	needHold    needNone    its receiver has less, has stalled, or is gone (releaseWindowLocked)
type need byte

const (
	needNone   need = iota
	needAnswer      // it waits for an answer: the window opens sooner
	needHold        // the window is held back for its receiver
)

// demand is the need of a connection, and what decides about it.
type demand struct {
	need  need
	asked time.Time // when it started to wait for an answer
	run   int       // bytes that have arrived since it last sent something
}

// holdWindowLocked holds back the window for a receiver that has more than half of
// ConnBuffer, unless it has stalled.
func (c *Conn) holdWindowLocked() {
	s, h := c.s, &c.s.hold
	if s.cfg.Pause || s.cfg.ConnBuffer < holdLeast || c.demand.need == needHold || c.held <= s.cfg.ConnBuffer/2 || c.stalled() {
		return
	}
	c.stopAskingLocked()
	c.demand.need = needHold
	if h.conns = append(h.conns, c); len(h.conns) == 1 {
		h.wait = intervalFirst // other connections may be waiting already
		h.timer = time.AfterFunc(h.wait, s.tick)
	}
}

// stalled reports whether a slow receiver has taken nothing for a while.
func (c *Conn) stalled() bool { return time.Since(c.moved) >= standstill }

// releaseWindowLocked notes that a connection no longer needs the window held back. The
// caller calls openWindow after it has unlocked mu.
func (c *Conn) releaseWindowLocked() {
	if c.demand.need != needHold {
		return
	}
	c.demand.need = needNone
	h := &c.s.hold
	i := slices.Index(h.conns, c)
	if h.conns = slices.Delete(h.conns, i, i+1); len(h.conns) == 0 {
		h.timer.Stop()
	}
}

// interval returns the time between two increments.
func (s *Session) interval() time.Duration {
	if s.server {
		return interval
	}
	return intervalBlind
}

// tick grants an increment while receivers are slow, and forgets those that have stalled.
func (s *Session) tick() {
	s.mu.Lock()
	for _, c := range slices.Backward(s.hold.conns) { // each removes at most itself
		if c.stalled() {
			c.releaseWindowLocked()
		}
	}
	if h := &s.hold; len(h.conns) > 0 && !s.closed {
		h.addDue(increment)
		h.setTimer(min(2*h.wait, s.interval()))
	}
	s.mu.Unlock()
	s.openWindow(0)
}

// busyLocked reports whether the receiver still holds enough data to continue with.
func (c *Conn) busyLocked() bool { return c.held > maxInFlight }

// askLocked notes that the connection starts to wait for data: it has sent something that
// may be answered, or its receiver has taken everything of a transfer that may continue.
func (c *Conn) askLocked() {
	h := &c.s.hold
	if len(h.conns) == 0 || c.state == stateClosed || c.busyLocked() || c.demand.need == needAnswer && time.Since(c.demand.asked) < askAgain {
		return
	}
	if c.demand.need != needAnswer {
		c.demand.need = needAnswer
		h.asks++
	}
	c.demand.asked = time.Now()
	if h.wait > intervalFirst {
		h.setTimer(intervalFirst)
	}
}

// answeredLocked notes that the connection no longer waits for an answer. The last one that
// does makes the interval long again.
func (c *Conn) answeredLocked() {
	if h := &c.s.hold; c.stopAskingLocked() && h.asks == 0 && len(h.conns) > 0 {
		h.setTimer(c.s.interval())
	}
}

// stopAskingLocked reports whether the connection waited for an answer until now.
func (c *Conn) stopAskingLocked() bool {
	if c.demand.need != needAnswer {
		return false
	}
	c.demand.need = needNone
	c.s.hold.asks--
	return true
}

// cameLocked notes that n bytes arrived, after which more may follow. It is called before
// the receiver holds them.
func (c *Conn) cameLocked(n int) {
	c.demand.run += n
	c.answeredLocked()
	c.replied = c.replied || c.leftLocked()
	if h := &c.s.hold; len(h.conns) > 0 && !c.busyLocked() {
		h.addDue(4 * n) // the other connections get some of it
	}
}

// tookLocked notes that the receiver has taken something. The caller calls openWindow after
// it has unlocked mu.
func (c *Conn) tookLocked() {
	if c.held <= c.s.cfg.ConnBuffer/8*3 {
		c.releaseWindowLocked()
	}
	if c.held == 0 && c.demand.run >= drainedLeast && c.state != stateClosed {
		c.askLocked()
	}
}

// openWindow notes that n bytes arrived, and opens the window by all bytes that are owed or,
// while it is held back, by those of them that are due.
func (s *Session) openWindow(n int) {
	s.mu.Lock()
	h := &s.hold
	h.owed += n
	held := len(h.conns) > 0
	if !held {
		h.due = h.owed
	}
	n = min(h.owed, h.due)
	h.owed -= n
	h.due -= n
	s.mu.Unlock()
	switch {
	case n == 0:
	case held:
		s.st.Grant(n)
	default:
		s.st.Consumed(n)
	}
}
