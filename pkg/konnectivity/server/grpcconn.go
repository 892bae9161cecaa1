// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/promtext"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

type counterValue = promtext.Value

// grpcConn is one tunneled connection of a gRPC frontend. It has no goroutine: the
// frontend's reader sends up, to the agent, and the link's reader sends down, to
// the frontend.
type grpcConn struct {
	g       *grpcStream
	id      int64
	random  int64
	pending *Pending // guarded by mu

	mu     sync.Mutex
	state  grpcConnState
	st     tunnel.Stream // nil until the dial succeeds
	up     []*buffer.Chunk
	guard  *time.Timer // runs guardUp
	moving bool        // a goroutine is sending from up

	// Data for the frontend is held back until the frontend has shown that it knows
	// the connection. Before that, its reader would drop the data.
	hold  holdState
	held  []*buffer.Chunk
	ended func() // runs after the held data is sent
}

// grpcConnState is what has become of a connection. It only grows.
type grpcConnState uint8

const (
	grpcDialing   grpcConnState = iota
	grpcUp                      // the dial succeeded, and the connection is counted
	grpcAbandoned               // the frontend gave up the dial before it was answered
	grpcGone                    // the frontend has gone, and the connection is no longer counted
)

// Dialed implements tunnel.Receiver.
func (c *grpcConn) Dialed(st tunnel.Stream, err error) {
	g := c.g
	if err != nil {
		g.mu.Lock()
		delete(g.dials, c.random)
		g.mu.Unlock()
		g.send(&wire.Packet{Payload: wire.DialRsp, Random: c.random, Error: err.Error()})
		g.finishIfUnused()
		return
	}
	c.id = g.s.nextID.Add(1)
	c.mu.Lock()
	c.st = st
	gone := c.state != grpcDialing
	if !gone {
		c.state = grpcUp
	}
	c.mu.Unlock()
	g.mu.Lock()
	delete(g.dials, c.random)
	if g.closed {
		gone = true
	} else if !gone {
		g.conns[c.id] = c
		g.last = max(g.last, c.id)
		if g.first == 0 || c.id < g.first {
			g.first = c.id
		}
	}
	g.mu.Unlock()
	if gone {
		c.mu.Lock()
		c.leaveLocked()
		c.mu.Unlock()
		st.Reset("client is gone", false)
		return
	}
	g.send(&wire.Packet{Payload: wire.DialRsp, Random: c.random, ConnID: c.id})
}

// cancel cancels a dial that the frontend gave up.
func (c *grpcConn) cancel() {
	c.mu.Lock()
	p, st := c.pending, c.st
	if st == nil {
		c.state = grpcAbandoned
	}
	c.mu.Unlock()
	switch {
	case st != nil:
		c.frontendGone()
	case p != nil:
		p.Cancel()
	}
}

// leaveLocked notes that the frontend of an established connection has gone, which is then no longer counted.
func (c *grpcConn) leaveLocked() {
	if c.state != grpcGone {
		c.state = grpcGone
		c.g.s.endConn()
	}
}

// frontendLeft reports whether the frontend has gone or gave up the dial; mu is held.
func (c *grpcConn) frontendLeft() bool { return c.state >= grpcAbandoned }

// uplink sends what the frontend sent, as far as the link's window allows. The rest
// stays queued, and keeps the frontend's flow control window closed.
func (c *grpcConn) uplink(chunk *buffer.Chunk) {
	c.mu.Lock()
	if len(c.up) > 0 { // it will wait
		c.up = buffer.Enqueue(c.up, chunk)
	} else {
		c.up = append(c.up, chunk)
	}
	c.mu.Unlock()
	c.frontendKnows()
	c.sendUp(!c.g.frontend.several.Load())
}

// sendUp moves chunks from up to the link, one caller at a time.
func (c *grpcConn) sendUp(mayWait bool) {
	c.mu.Lock()
	if c.moving { // that goroutine looks at the window until it is closed
		c.mu.Unlock()
		return
	}
	c.moving = true
	consumed := 0
	for len(c.up) > 0 {
		w := c.st.Window()
		if w == 0 {
			c.up[0] = c.up[0].Shrink()
			break
		}
		chunk := c.up[0]
		if w < chunk.Len() {
			part := buffer.From(chunk.Bytes()[:w])
			chunk.Consume(w)
			chunk = part
		} else {
			c.up[0] = nil
			c.up = c.up[1:]
		}
		n := chunk.Len()
		consumed += n
		c.mu.Unlock()
		c.st.Send(chunk, mayWait)
		c.mu.Lock()
	}
	finished := len(c.up) == 0
	if finished {
		c.up = nil
		c.unguardLocked()
	}
	c.moving = false
	gone := c.frontendLeft()
	c.mu.Unlock()
	if consumed > 0 { // also for a closed connection: its stream may carry others
		c.g.st.Consumed(consumed)
	}
	if gone && finished {
		c.st.Close()
	}
}

// dropUp discards data that waits for a far end that no longer reads.
func (c *grpcConn) dropUp() {
	c.mu.Lock()
	up := c.up
	c.up = nil
	c.unguardLocked()
	c.mu.Unlock()
	if n := buffer.Release(up); n > 0 {
		c.g.st.Consumed(n)
	}
}

// Writable implements tunnel.Receiver.
func (c *grpcConn) Writable() { c.sendUp(false) }

// frontendGone ends the connection from the frontend's side. Data that the frontend
// sent is still delivered, as long as the destination takes it, and nothing more
// is read from the destination.
func (c *grpcConn) frontendGone() {
	c.mu.Lock()
	c.leaveLocked()
	st := c.st
	held := c.held
	c.held = nil
	empty := len(c.up) == 0 && !c.moving
	c.mu.Unlock()
	if n := buffer.Release(held); n > 0 {
		st.Consumed(n)
	}
	c.frontendKnows()
	switch {
	case st != nil && empty:
		st.Close()
	case st != nil:
		c.guardUp(-1)
	}
}

// guardUp resets the connection of a frontend that has gone when the destination
// takes none of the remaining data for Pipe.Stall. left is how many bytes
// remained at the last check.
func (c *grpcConn) guardUp(left int) {
	c.mu.Lock()
	now := 0
	for _, chunk := range c.up {
		now += chunk.Len()
	}
	c.mu.Unlock()
	switch now {
	case 0:
		return // Close follows the last byte
	case left:
		c.dropUp()
		c.st.Reset("the client closed the connection, and the destination does not accept the last bytes", false)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.up) > 0 {
		c.guard = time.AfterFunc(c.g.s.cfg.Pipe.Stall, func() { c.guardUp(now) })
	}
}

// unguardLocked stops the timer of guardUp because no data is left. A running
// timer would keep the whole frontend in memory.
func (c *grpcConn) unguardLocked() {
	if c.guard != nil {
		c.guard.Stop()
		c.guard = nil
	}
}

// Data implements tunnel.Receiver.
func (c *grpcConn) Data(chunks ...*buffer.Chunk) {
	c.mu.Lock()
	if c.frontendLeft() {
		st := c.st
		c.mu.Unlock()
		st.Consumed(buffer.Release(chunks))
		return
	}
	if c.hold != holdOver {
		c.keep(chunks)
		return
	}
	c.mu.Unlock()
	c.down(chunks)
}

func (c *grpcConn) down(chunks []*buffer.Chunk) {
	n := 0
	for _, chunk := range chunks {
		c.g.to[wire.Data].Inc()
		n += chunk.Len()
	}
	if !c.g.st.SendData(c.id, c, chunks...) {
		c.st.Consumed(n)
	}
}

// Sent implements h2.Sender: n bytes fitted into the frontend's flow control window
// and were written to its socket.
func (c *grpcConn) Sent(n int) { c.st.Consumed(n) }

// End implements tunnel.Receiver. The frontend protocol has no half-close: when
// the destination stops sending, the connection ends.
func (c *grpcConn) End() { c.whenKnown(func() { c.farEnd("") }) }

// PeerClosed is called after End when the destination no longer reads.
func (c *grpcConn) PeerClosed() { c.dropUp() }

// Aborted implements tunnel.Receiver.
func (c *grpcConn) Aborted(err error) {
	c.dropUp()
	if errors.Is(err, tunnel.ErrEvicted) {
		c.drop()
	}
	c.whenKnown(func() { c.farEnd(err.Error()) })
}

// drop discards data that the frontend has not taken yet.
func (c *grpcConn) drop() {
	c.mu.Lock()
	held := c.held
	c.held = nil
	c.mu.Unlock()
	buffer.Release(held)
	c.g.st.Drop(c)
}

// farEnd tells the frontend, after all data, that the connection is closed.
func (c *grpcConn) farEnd(reason string) {
	if !c.g.remove(c) {
		return // the frontend closed it first
	}
	c.g.queueClose(c.id, reason)
	c.frontendGone()
	c.g.finishIfUnused()
	c.g.st.Flush()
}
