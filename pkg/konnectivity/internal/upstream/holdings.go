// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/membudget"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
)

// SetAccount says on whose account goes what receivers hold.
func (s *Session) SetAccount(a *membudget.Account) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.account = a
	for _, c := range s.conns { // dials may have come before the answer to ours
		a.Add(c.held)
	}
	for c := range s.flushing {
		a.Add(c.held)
	}
}

// lagging is the number of held bytes from which on the time is noted.
const lagging = buffer.MaxSize

// gotLocked notes that n bytes go to the receiver.
func (c *Conn) gotLocked(n int) {
	if c.held <= lagging && c.held+n > lagging {
		c.moved = time.Now()
	}
	c.held += n
	c.s.account.Add(n)
	c.holdWindowLocked()
}

// passedOnLocked notes that the receiver has passed on n bytes, or all it has if
// that is less, and returns how many these were.
func (c *Conn) passedOnLocked(n int) int {
	n = min(n, c.held)
	if c.held > lagging {
		c.moved = time.Now()
	}
	c.held -= n
	c.s.account.Add(-n)
	c.tookLocked()
	if c.held == 0 {
		delete(c.s.flushing, c)
	}
	return n
}

// Holdings implements membudget.Member.
func (s *Session) Holdings() (all []membudget.Holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add := func(c *Conn) {
		if c.held > 0 && c.r != nil {
			all = append(all, membudget.Holding{Bytes: c.held, Since: c.since(), Reset: func() { c.evict(tunnel.ErrEvicted) }})
		}
	}
	for _, c := range s.conns {
		add(c)
	}
	for c := range s.flushing {
		add(c)
	}
	return all
}

// since is when the receiver last passed bytes on; one that does not lag does so
// now.
func (c *Conn) since() time.Time {
	if c.held > lagging {
		return c.moved
	}
	return time.Now()
}

// evict ends a connection that holds too much.
func (c *Conn) evict(err error) {
	c.Reset(err.Error(), false)
	c.r.Aborted(err)
	c.settle()
}
