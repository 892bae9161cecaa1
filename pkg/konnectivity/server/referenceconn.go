package server

import (
	"crypto/tls"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/h2"
)

// referenceConn is an HTTP/2 connection on the agents' port. TLS alone may let anybody
// in, so one on which no agent is connected is a stranger: it has little time, and
// strangers have no more room than agents have left.
type referenceConn struct {
	s    *Server
	nc   *tls.Conn
	conn *h2.Conn

	mu     sync.Mutex
	agents int // streams that are connected agents; a stranger has none
	over   bool
	timer  *time.Timer // ends a stranger
}

// await gives a stranger the time to become an agent.
func (c *referenceConn) await() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.agents == 0 && !c.over {
		c.timer = time.AfterFunc(c.s.cfg.HandshakeTimeout, c.expire)
	}
}

func (c *referenceConn) expire() {
	c.mu.Lock()
	stranger := c.agents == 0 && !c.over
	c.mu.Unlock()
	if stranger {
		c.s.refuse(c.nc, "handshake", fmt.Errorf("no agent is connected by it after %v", c.s.cfg.HandshakeTimeout))
		c.conn.Close()
	}
}

// came notes that a stream is a connected agent.
func (c *referenceConn) came() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.agents++; c.agents > 1 || c.over {
		return
	}
	c.s.strangers.Add(-1)
	if c.timer != nil {
		c.timer.Stop()
	}
}

// left notes that an agent's stream has ended, as a rule with its connection.
func (c *referenceConn) left() {
	c.mu.Lock()
	last := false
	if c.agents--; c.agents == 0 && !c.over {
		last = true
		c.s.strangers.Add(1)
	}
	c.mu.Unlock()
	if last {
		c.await()
	}
}

// end follows the end of the connection.
func (c *referenceConn) end() {
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

// goAway does nothing: agents of the reference protocol know no such message.
func (c *referenceConn) goAway() {}

func (c *referenceConn) abort() { c.conn.Close() }
