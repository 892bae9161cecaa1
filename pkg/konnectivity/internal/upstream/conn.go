// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

// Conn is one connection of a session.
//
// Five flags are not part of its state. Each may be set in several states, with or without
// the others: listed and waiting are about the queue and its source, receiverClosed is about the
// receiver, heard and replied are about the data that has come since two different moments.
type Conn struct {
	s      *Session
	id     int64
	random int64
	r      tunnel.Receiver

	// Guarded by s.mu.
	queue          []*buffer.Chunk
	queued         int
	held           int       // bytes the receiver has not consumed
	moved          time.Time // when the receiver last consumed while it was slow
	state          connState
	listed         bool  // in Session.ready
	waiting        bool  // the receiver waits for Writable
	receiverClosed bool  // the receiver no longer reads
	heard          bool  // data arrived since the last check by hearOut
	replied        bool  // something arrived after the last data had left
	mark           int64 // Session.given after the last data or, at an agent, after the close
	demand         demand

	lastData time.Time // when data was given to HTTP/2
}

var _ tunnel.Stream = (*Conn)(nil)

// SetReceiver sets the receiver of the connection. An agent calls it in OnDial.
func (c *Conn) SetReceiver(r tunnel.Receiver) {
	c.s.mu.Lock()
	c.r = r
	c.s.mu.Unlock()
}

// ID returns the connection ID, which is unique in its session.
func (c *Conn) ID() int64 {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.id
}

// Window implements tunnel.Stream.
func (c *Conn) Window() int {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	w := c.windowLocked()
	c.waiting = w == 0
	return w
}

func (c *Conn) windowLocked() int {
	if c.state != stateOpen {
		return buffer.MaxPayload
	}
	return max(0, c.s.account.Room(maxQueued)-c.queued)
}

// Send implements tunnel.Stream. It never blocks.
func (c *Conn) Send(chunk *buffer.Chunk, _ bool) {
	s := c.s
	s.mu.Lock()
	if c.state != stateOpen || s.closed {
		s.mu.Unlock()
		chunk.Release()
		return
	}
	c.queue = append(c.queue, chunk)
	c.queued += chunk.Len()
	c.listLocked()
	c.demand.run = 0
	c.askLocked()
	s.mu.Unlock()
	s.kick()
}

// SendAll implements tunnel.Stream.
func (c *Conn) SendAll(chunks []*buffer.Chunk, mayWait bool) {
	for _, chunk := range chunks {
		c.Send(chunk, mayWait)
	}
}

func (c *Conn) listLocked() {
	if !c.listed {
		c.listed = true
		c.s.ready = append(c.s.ready, c)
	}
}

// nextLocked takes the next chunk from the queue. end reports that the close is
// due after it.
func (c *Conn) nextLocked() (chunk *buffer.Chunk, end, wake bool) {
	c.listed = false
	if len(c.queue) > 0 {
		chunk = c.queue[0]
		c.queue = c.queue[1:]
		c.queued -= chunk.Len()
		c.s.inFlight += chunk.Len()
		c.s.given += int64(chunk.Len())
		c.mark, c.lastData, c.replied = c.s.given, time.Now(), false
	}
	if len(c.queue) > 0 {
		c.listLocked()
	} else if c.queue = nil; c.state == stateClosing && !c.holdLocked() {
		c.state, end = stateHalfClosedLocal, true
		if !c.s.server { // the agent's close is final; a server waits for CLOSE_RSP
			c.listenOnLocked()
		}
	}
	if c.waiting && c.windowLocked() > 0 {
		c.waiting, wake = false, true
	}
	return chunk, end, wake
}

// Consumed implements tunnel.Stream. It does not return bytes to the window that
// settle has already returned.
func (c *Conn) Consumed(n int) {
	c.s.mu.Lock()
	n = c.passedOnLocked(n)
	c.s.mu.Unlock()
	c.s.openWindow(0)
	c.s.consumed(n)
}

// settle returns to the stream's window the bytes that a receiver that has gone
// did not consume.
func (c *Conn) settle() { c.Consumed(tunnel.All) }

// CloseWrite implements tunnel.Stream. The protocol has no half-close: closing
// one direction closes the connection.
func (c *Conn) CloseWrite() { c.closeSend() }

// Close implements tunnel.Stream.
func (c *Conn) Close() {
	c.s.mu.Lock()
	c.receiverClosed = true
	if c.state == stateHalfClosedLocal && !c.s.server { // the receiver no longer waits for late data
		c.forgetLocked()
	}
	c.s.mu.Unlock()
	c.closeSend()
	c.settle()
}

func (c *Conn) closeSend() {
	s := c.s
	s.mu.Lock()
	if c.state != stateOpen {
		s.mu.Unlock()
		return
	}
	if c.id == 0 || s.dials[c.random] == c && s.server {
		delete(s.dials, c.random)
		c.state = stateClosed
		c.answeredLocked()
		s.mu.Unlock()
		s.send(&wire.Packet{Payload: wire.DialCls, Random: c.random})
		return
	}
	c.state = stateClosing
	c.listLocked()
	c.askLocked()
	s.mu.Unlock()
	s.kick()
}

// Reset implements tunnel.Stream.
func (c *Conn) Reset(reason string, ordered bool) {
	s := c.s
	s.mu.Lock()
	if ordered || c.id == 0 {
		s.mu.Unlock()
		c.Close()
		return
	}
	send := c.state < stateHalfClosedLocal
	if c.state != stateClosed {
		c.dropLocked()
		c.forgetLocked()
	}
	s.mu.Unlock()
	if send {
		s.sendClose(c.id, reason)
	}
	c.settle()
}

// forgetLocked removes the connection on this side. Nothing more is delivered for
// it.
func (c *Conn) forgetLocked() {
	c.state = stateClosed
	c.answeredLocked()
	c.releaseWindowLocked()
	delete(c.s.conns, c.id)
}

func (c *Conn) dropLocked() {
	for _, chunk := range c.queue {
		chunk.Release()
	}
	c.queue, c.queued = nil, 0
}

func (c *Conn) abort(err error) {
	c.s.mu.Lock()
	already := c.state == stateClosed
	c.state = stateClosed
	dialing := c.s.server && c.id == 0
	c.dropLocked()
	c.passedOnLocked(tunnel.All)
	delete(c.s.conns, c.id)
	delete(c.s.dials, c.random)
	r := c.r
	c.s.mu.Unlock()
	switch {
	case already || r == nil:
	case dialing:
		r.Dialed(nil, &tunnel.DialError{Code: tunnel.CodeAgentGone, Message: err.Error()})
	default:
		r.Aborted(err)
	}
}

// Accept accepts a dial; agent side only.
func (c *Conn) Accept() {
	if c.s.takeDial(c.random) == nil {
		return
	}
	c.s.mu.Lock()
	c.askLocked()
	c.s.mu.Unlock()
	c.s.send(&wire.Packet{Payload: wire.DialRsp, ConnID: c.id, Random: c.random})
}

// Refuse answers a dial that failed; agent side only.
func (c *Conn) Refuse(e *tunnel.DialError) {
	if c.s.takeDial(c.random) == nil {
		return
	}
	c.s.mu.Lock()
	c.forgetLocked()
	c.s.mu.Unlock()
	c.s.send(&wire.Packet{Payload: wire.DialRsp, Random: c.random, Error: e.Message})
}

// CodeOf derives the code of a failed dial from the error text of an upstream
// agent.
func CodeOf(text string) tunnel.Code {
	for _, k := range kinds {
		if strings.Contains(text, k.text) {
			return k.code
		}
	}
	return tunnel.CodeOther
}

var kinds = []struct {
	text string
	code tunnel.Code
}{
	{"denied by rule", tunnel.CodeDenied}, // the text of Fairlead's own agents, which may contain the others
	{"not in the list of allowed destinations", tunnel.CodeDenied},
	{"its limit", tunnel.CodeLimit},
	{"i/o timeout", tunnel.CodeTimeout},
	{"deadline exceeded", tunnel.CodeTimeout},
	{"timed out", tunnel.CodeTimeout},
	{"connection refused", tunnel.CodeRefused},
	{"too many open files", tunnel.CodeLimit},
	{"no such host", tunnel.CodeDNS},
	{"name resolution", tunnel.CodeDNS},
	{"lookup ", tunnel.CodeDNS},
	{"no route to host", tunnel.CodeNoRoute},
	{"unreachable", tunnel.CodeNoRoute},
}
