// SPDX-License-Identifier: Apache-2.0

package upstream

import "time"

// lastWords is for how long an agent's connection that has sent its close listens on
// after the last data: what the client wrote before it hears of the close is still
// under way. A server that is done says so with CLOSE_REQ, except for gRPC clients.
const lastWords = 500 * time.Millisecond

// listenOnLocked follows the agent's close. It ends the sending direction alone where
// the receiver reads on, else the connection.
func (c *Conn) listenOnLocked() {
	if c.receiverClosed {
		c.forgetLocked()
		return
	}
	c.mark, c.heard = c.s.given, false
	time.AfterFunc(lastWords, c.hearOut)
}

// hearOut ends a connection whose close has left for the server, and on which nothing
// has come since it looked last. The server, which does not have to answer a close,
// will send nothing more.
func (c *Conn) hearOut() {
	s := c.s
	s.mu.Lock()
	if c.state == stateClosed {
		s.mu.Unlock()
		return
	}
	if !c.leftLocked() || c.heard {
		c.heard = false
		time.AfterFunc(lastWords, c.hearOut)
		s.mu.Unlock()
		return
	}
	c.endLocked()
	s.mu.Unlock()
	c.ended("")
}

// holdClose is for how long a server holds its close back from an agent behind the last data.
// Upstream's agent closes the destination's connection as soon as it hears of the close,
// whatever it has not written to it yet. Nothing in the protocol tells when it has; most
// destinations take all within moments.
const holdClose = 500 * time.Millisecond

// holdStale is after how long without data none can be on its way any more.
const holdStale = 10 * time.Second

// holdLocked reports whether the close waits for that. Where something has come behind the
// last data, that was most likely taken.
func (c *Conn) holdLocked() bool {
	s, now := c.s, time.Now()
	hold := s.cfg.HoldClose
	quiet := now.Sub(c.lastData)
	switch {
	case !s.server || c.lastData.IsZero() || c.replied:
		return false
	case !c.leftLocked():
		c.state = stateDraining
		time.AfterFunc(hold/4, c.closeHeld)
		return true
	case quiet >= holdStale, quiet >= hold && now.Sub(s.sentAt) >= hold:
		return false
	}
	c.state = stateDelayed
	time.AfterFunc(hold, c.closeHeld)
	return true
}

// leftLocked says whether HTTP/2 has sent all data of the connection that it was given.
func (c *Conn) leftLocked() bool { return c.s.given-int64(c.s.inFlight) >= c.mark }

// closeHeld sends the close that was held back, when all data has left for that long.
func (c *Conn) closeHeld() {
	s := c.s
	s.mu.Lock()
	wait := time.Duration(0)
	switch {
	case c.state >= stateHalfClosedLocal || s.closed:
		s.mu.Unlock()
		return
	case !c.leftLocked():
		wait = s.cfg.HoldClose / 4
	case c.state == stateDraining:
		c.state, wait = stateDelayed, s.cfg.HoldClose
	}
	if wait == 0 {
		c.state = stateHalfClosedLocal
	}
	s.mu.Unlock()
	if wait > 0 {
		time.AfterFunc(wait, c.closeHeld)
		return
	}
	s.sendClose(c.id, "")
}
