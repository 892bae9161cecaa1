package server

import (
	"errors"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/metrics"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/wire"
)

type counterValue = metrics.Value

// grpcConn is one tunnelled connection of a gRPC client. It has no goroutine: the
// client's reader sends up, the link's reader sends down.
type grpcConn struct {
	g       *grpcStream
	id      int64
	random  int64
	pending *Pending // guarded by mu

	mu     sync.Mutex
	st     tunnel.Stream
	gone   bool // the client is, or gave up the dial
	up     []*buf.Chunk
	guard  *time.Timer // of guardUp
	closed bool        // counted as not established any more
	moving bool        // somebody sends from up
	again  bool        // the window opened while somebody did

	// Until the client has shown that it knows the connection, data for it is
	// held back: its reader would drop it.
	known  bool
	probed bool
	held   []*buf.Chunk
	letGo  bool   // somebody lets held data go
	ended  func() // what follows the held data
}

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
	gone := c.gone
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
		c.countClosed()
		st.Reset("client is gone", false)
		return
	}
	g.send(&wire.Packet{Payload: wire.DialRsp, Random: c.random, ConnID: c.id})
}

// cancel ends a dial that the client gave up.
func (c *grpcConn) cancel() {
	c.mu.Lock()
	c.gone = true
	p, st := c.pending, c.st
	c.mu.Unlock()
	switch {
	case st != nil:
		c.clientGone()
	case p != nil:
		p.Cancel()
	}
}

func (c *grpcConn) countClosed() {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.mu.Unlock()
	if first {
		c.g.s.endConn()
	}
}

// uplink sends what the client sent, as far as the link's window allows; the rest
// waits, and keeps the client's window closed.
func (c *grpcConn) uplink(chunk *buf.Chunk) {
	c.mu.Lock()
	if len(c.up) > 0 { // it will wait
		c.up = buf.Enqueue(c.up, chunk)
	} else {
		c.up = append(c.up, chunk)
	}
	c.mu.Unlock()
	c.clientKnows()
	c.sendUp(!c.g.client.several.Load())
}

// sendUp moves chunks from up to the link, one caller at a time.
func (c *grpcConn) sendUp(mayWait bool) {
	c.mu.Lock()
	if c.moving {
		c.again = true
		c.mu.Unlock()
		return
	}
	c.moving = true
	consumed := 0
	for len(c.up) > 0 {
		c.again = false
		w := c.st.Window()
		if w == 0 && c.again {
			continue
		}
		if w == 0 {
			c.up[0] = c.up[0].Shrink()
			break
		}
		chunk := c.up[0]
		if w < chunk.Len() {
			part := buf.From(chunk.Bytes()[:w])
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
	gone := c.gone
	c.mu.Unlock()
	if consumed > 0 { // also of a connection that is over: its stream may carry others
		c.g.st.Consumed(consumed)
	}
	if gone && finished {
		c.st.Close()
	}
}

// dropUp forgets what waits for a far end that reads nothing any more.
func (c *grpcConn) dropUp() {
	c.mu.Lock()
	up := c.up
	c.up = nil
	c.unguardLocked()
	c.mu.Unlock()
	if n := buf.Release(up); n > 0 {
		c.g.st.Consumed(n)
	}
}

// Writable implements tunnel.Receiver.
func (c *grpcConn) Writable() { c.sendUp(false) }

// clientGone ends the connection from the client's side: what it sent arrives,
// as long as the destination takes it, and nothing is read any more.
func (c *grpcConn) clientGone() {
	c.mu.Lock()
	c.gone = true
	st := c.st
	held := c.held
	c.held = nil
	empty := len(c.up) == 0 && !c.moving
	c.mu.Unlock()
	if n := buf.Release(held); n > 0 {
		st.Consumed(n)
	}
	c.clientKnows()
	c.countClosed()
	switch {
	case st != nil && empty:
		st.Close()
	case st != nil:
		c.guardUp(-1)
	}
}

// guardUp gives up what a client that is gone has left when the destination takes none of
// it for a while. left is what there was when it was looked last.
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
		c.st.Reset("the dialler is gone, and the destination takes none of the last bytes", false)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.up) > 0 {
		c.guard = time.AfterFunc(c.g.s.cfg.Pipe.Stall, func() { c.guardUp(now) })
	}
}

// unguardLocked ends that, as nothing is left: a timer holds the whole client.
func (c *grpcConn) unguardLocked() {
	if c.guard != nil {
		c.guard.Stop()
		c.guard = nil
	}
}

// Data implements tunnel.Receiver.
func (c *grpcConn) Data(chunks ...*buf.Chunk) {
	c.mu.Lock()
	if c.gone {
		st := c.st
		c.mu.Unlock()
		st.Consumed(buf.Release(chunks))
		return
	}
	if !c.known {
		c.hold(chunks)
		return
	}
	c.mu.Unlock()
	c.down(chunks)
}

func (c *grpcConn) down(chunks []*buf.Chunk) {
	n := 0
	for _, chunk := range chunks {
		c.g.to[wire.Data].Inc()
		n += chunk.Len()
	}
	if !c.g.st.SendData(c.id, c, chunks...) {
		c.st.Consumed(n)
	}
}

// Sent implements h2.Sender: the client's window and socket took n bytes.
func (c *grpcConn) Sent(n int) { c.st.Consumed(n) }

// End implements tunnel.Receiver. Clients know no half-close: the end of what the
// destination sends is the end of the connection.
func (c *grpcConn) End() { c.whenKnown(func() { c.farEnd("") }) }

// PeerClosed is called behind End when the destination reads nothing any more.
func (c *grpcConn) PeerClosed() { c.dropUp() }

// Aborted implements tunnel.Receiver.
func (c *grpcConn) Aborted(err error) {
	c.dropUp()
	if errors.Is(err, tunnel.ErrEvicted) {
		c.drop()
	}
	c.whenKnown(func() { c.farEnd(err.Error()) })
}

// drop forgets what the client has not taken yet.
func (c *grpcConn) drop() {
	c.mu.Lock()
	held := c.held
	c.held = nil
	c.mu.Unlock()
	buf.Release(held)
	c.g.st.Drop(c)
}

// farEnd tells the client that the connection is over, behind all data.
func (c *grpcConn) farEnd(reason string) {
	if !c.g.remove(c) {
		return // the client closed it first
	}
	c.g.queueClose(c.id, reason)
	c.clientGone()
	c.g.finishIfUnused()
	c.g.st.Flush()
}
