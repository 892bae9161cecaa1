package compat

import "time"

// lastWords is for how long an agent's connection that has sent its close listens on
// after the last data: what the client wrote before it hears of the close is still
// under way. A server that is done says so with CLOSE_REQ, except for gRPC clients.
const lastWords = 500 * time.Millisecond

// listenOnLocked follows the agent's close. It ends the sending direction alone where
// the receiver reads on, else the connection.
func (c *Conn) listenOnLocked() {
	if c.deaf {
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
	if c.dead {
		s.mu.Unlock()
		return
	}
	if waits := s.given-int64(s.inFlight) < c.mark; waits || c.heard {
		c.heard = false
		time.AfterFunc(lastWords, c.hearOut)
		s.mu.Unlock()
		return
	}
	c.endUnlock("")
}
