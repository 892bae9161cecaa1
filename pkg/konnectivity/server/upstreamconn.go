// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/tls"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
)

// upstreamConn is an HTTP/2 connection on the agents' port. TLS alone may authenticate
// no peer, so a connection without a connected agent counts as a stranger: it has
// little time, and strangers have no more places than agents have left.
type upstreamConn struct {
	s    *Server
	nc   *tls.Conn
	conn *h2.Conn

	mu     sync.Mutex
	agents int // streams of connected agents; a stranger has none
	begun  int // streams that did not become agents, or were agents for less than briefAgent
	over   bool
	timer  *time.Timer // closes a stranger's connection
}

// strangerStreams is the number of streams of a connection that need not be connected
// agents. An agent needs one stream, and opens no other one on the connection.
const strangerStreams = 4

// briefAgent is how long an agent's stream has to last so that it does not count as one
// of a flood.
const briefAgent = 10 * time.Second

// mayOpen limits what a peer makes the server do with streams that do not become
// agents, also next to an agent: the token of one node must not allow a flood either.
// Each stream costs a session and an authentication, and a stream that is reset makes
// room for the next. So an agent that ends at once counts, too.
func (c *upstreamConn) mayOpen() bool {
	c.mu.Lock()
	c.begun++
	ok := c.begun <= strangerStreams
	c.mu.Unlock()
	if !ok {
		c.s.refuse(c.nc, "flood", fmt.Errorf("it began more than %d streams that are not a connected agent, or end within %v", strangerStreams, briefAgent))
	}
	return ok
}

// await gives a stranger the time to become an agent.
func (c *upstreamConn) await() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.agents == 0 && !c.over {
		c.timer = time.AfterFunc(c.s.cfg.HandshakeTimeout, c.expire)
	}
}

func (c *upstreamConn) expire() {
	c.mu.Lock()
	stranger := c.agents == 0 && !c.over
	c.mu.Unlock()
	if stranger {
		c.s.refuse(c.nc, "handshake", fmt.Errorf("no agent is connected by it after %v", c.s.cfg.HandshakeTimeout))
		c.conn.Close()
	}
}

// came notes that a stream is a connected agent.
func (c *upstreamConn) came() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun--
	if c.agents++; c.agents > 1 || c.over {
		return
	}
	c.s.strangers.Add(-1)
	if c.timer != nil {
		c.timer.Stop()
	}
}

// left notes that an agent's stream has ended after a time, usually with its connection.
func (c *upstreamConn) left(lived time.Duration) {
	c.mu.Lock()
	last := false
	if lived < briefAgent {
		c.begun++
	}
	if c.agents--; c.agents == 0 && !c.over {
		last = true
		if lived >= briefAgent {
			c.begun = 0
		}
		c.s.strangers.Add(1)
	}
	c.mu.Unlock()
	if last {
		c.await()
	}
}

// end is called when the connection has ended.
func (c *upstreamConn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.agents == 0 {
		c.s.strangers.Add(-1)
	}
	if c.timer != nil {
		c.timer.Stop()
	}
}

// goAway does nothing: upstream's protocol has no such message for agents.
func (c *upstreamConn) goAway() {}

func (c *upstreamConn) abort() { c.conn.Close() }
