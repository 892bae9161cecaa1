package compat

import "time"

// The reference protocol lets a peer send the bytes of each connection as fast as they
// come, however fast they are taken: a receiver that is merely slower than its source
// would hold ConnLimit after a while and lose its connection. While such a receiver
// catches up, the window of the stream stays shut. That makes all connections of the
// peer wait, so it is for no longer than brakeTime, they get something through behind it,
// and it is not done again for a receiver that could not catch up within that until it has.

const (
	// brakeTime is for how long the stream may wait for receivers.
	brakeTime = 250 * time.Millisecond
	// brakeRest is how many bytes of any connections come before it does so again.
	brakeRest = 1 << 20
	// brakeLeast is the least ConnLimit with which that is of use: what the window has
	// granted before comes nevertheless.
	brakeLeast = 8 << 20
)

// brake is the state of a session's window; it is guarded by the session's mu.
type brake struct {
	count int         // connections that want it shut
	turn  int         // how often it was shut
	timer *time.Timer // opens it again
	rest  int         // bytes that are to come before it is shut again
	owed  int         // bytes by which it is to be opened
}

// brakeLocked shuts the stream's window for a receiver that holds half of what it may.
func (c *Conn) brakeLocked() {
	s, b := c.s, &c.s.brake
	if s.cfg.Pause || s.cfg.ConnLimit < brakeLeast || c.braking || c.slow || c.held <= s.cfg.ConnLimit/2 {
		return
	}
	first := b.count == 0
	if first && b.rest > 0 {
		return
	}
	if first {
		b.turn++
		turn := b.turn
		b.timer = time.AfterFunc(brakeTime, func() { s.brakeOver(turn) })
	}
	c.braking, c.wholeTurn = true, first
	b.count++
}

// brakeOver opens the window although receivers have not caught up.
func (s *Session) brakeOver(turn int) {
	s.mu.Lock()
	if s.brake.turn == turn {
		for _, c := range s.conns {
			if c.braking {
				c.slow = c.wholeTurn
				c.releaseLocked()
			}
		}
	}
	s.mu.Unlock()
	s.repay()
}

// caughtUpLocked ends that for a receiver that holds clearly less. The caller goes on
// with repay when it has let go of mu.
func (c *Conn) caughtUpLocked() {
	if c.held <= c.s.cfg.ConnLimit/8*3 {
		c.slow = false
		c.releaseLocked()
	}
}

// releaseLocked says that a connection does not need the window shut.
func (c *Conn) releaseLocked() {
	b := &c.s.brake
	if !c.braking {
		return
	}
	c.braking = false
	if b.count--; b.count == 0 {
		b.timer.Stop()
		b.rest = brakeRest
	}
}

// credit returns how many of n bytes that have come open the stream's window at once.
func (s *Session) credit(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.brake.count > 0 {
		s.brake.owed += n
		return 0
	}
	s.brake.rest -= min(n, s.brake.rest)
	return n
}

// repay opens the window by what it was kept shut by, if nobody needs that any more.
func (s *Session) repay() {
	s.mu.Lock()
	n := 0
	if s.brake.count == 0 {
		n, s.brake.owed = s.brake.owed, 0
	}
	s.mu.Unlock()
	if n > 0 {
		s.st.Consumed(n)
	}
}
