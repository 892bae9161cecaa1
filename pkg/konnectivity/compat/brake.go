package compat

import "time"

// The reference protocol lets a peer send the bytes of each connection as fast as they
// come, however fast they are taken: a receiver that is merely slower than its source
// would hold ConnLimit after a while and lose its connection. While such a receiver
// catches up, the window of the stream stays shut. That makes all connections of the
// peer wait, so it is for no longer than brakeTime at once, and not done again for a
// receiver that could not catch up within that until it has.

// brakeTime is for how long the stream may wait for a receiver.
const brakeTime = 250 * time.Millisecond

// brakeLocked shuts the stream's window for a receiver that holds half of what it may.
func (c *Conn) brakeLocked() {
	s := c.s
	if s.cfg.Pause || c.brake != nil || c.slow || c.held <= s.cfg.ConnLimit/2 {
		return
	}
	s.brakes++
	var t *time.Timer
	t = time.AfterFunc(brakeTime, func() {
		s.mu.Lock()
		if c.brake == t {
			c.slow = true
			c.releaseLocked()
		}
		s.mu.Unlock()
		s.repay()
	})
	c.brake = t
}

// caughtUpLocked ends that for a receiver that holds clearly less. The caller goes on
// with repay when it has let go of mu.
func (c *Conn) caughtUpLocked() {
	if c.held > c.s.cfg.ConnLimit/8*3 {
		return
	}
	c.slow = false
	if c.brake != nil {
		c.brake.Stop()
		c.releaseLocked()
	}
}

func (c *Conn) releaseLocked() {
	c.brake = nil
	c.s.brakes--
}

// credit returns how many of n bytes that have come open the stream's window at once.
func (s *Session) credit(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.brakes > 0 {
		s.owed += n
		return 0
	}
	return n
}

// repay opens the window by what it was kept shut by, if nobody needs that any more.
func (s *Session) repay() {
	s.mu.Lock()
	n := 0
	if s.brakes == 0 {
		n, s.owed = s.owed, 0
	}
	s.mu.Unlock()
	if n > 0 {
		s.st.Consumed(n)
	}
}
