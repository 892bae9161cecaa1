// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

// grpcStream is one stream of a frontend. It carries one tunneled connection or
// several.
type grpcStream struct {
	s        *Server
	frontend *grpcFrontend
	st       *h2.Stream
	to, from *[8]*counterValue
	dec      wire.StreamDecoder
	acc      *buffer.Chunk // data being gathered for accID
	accID    int64
	// payload counts the bytes of data that the decoder has handed on.
	payload int64
	ended   bool // the frontend has ended the stream in an orderly way
	trace   traceparent.Context
	unknown bool // it has sent a packet of an unknown type

	mu    sync.Mutex
	dials map[int64]*grpcConn
	conns map[int64]*grpcConn
	used  bool // the stream has carried a dial
	told  bool // a packet for an unknown connection was reported
	// first and last are the lowest and the highest number of its connections.
	first, last int64
	known       bool // no longer counted in Server.opening
	// holding counts connections that hold data back.
	holding atomic.Int32
	closed  bool
}

// Headers implements h2.StreamHandler.
func (g *grpcStream) Headers([]h2.Field) {}

// Data implements h2.StreamHandler.
func (g *grpcStream) Data(p []byte) error {
	before := g.payload
	err := g.dec.Feed(p, g)
	// Bytes that are not payload are consumed at once. Payload opens the window
	// when it has gone into the link.
	if rest := len(p) - int(g.payload-before); rest > 0 {
		g.st.Consumed(rest)
	}
	if err != nil {
		g.frontend.bad(fmt.Errorf("bad packet: %w", err))
		return err
	}
	return nil
}

// Flush forwards the data that was gathered from one read.
func (g *grpcStream) Flush() { g.flushAcc() }

// End implements h2.StreamHandler: the frontend sends no more, which ends all that
// the stream carries.
func (g *grpcStream) End() {
	g.ended = true
	g.flushAcc()
	g.over()
	if !g.dec.Idle() { // one that is killed ends no stream, and one that gives up resets it
		g.frontend.bad(errors.New("the stream ends within a message"))
		g.st.Finish([]h2.Field{{Name: "grpc-status", Value: grpcInternal}, {Name: "grpc-message", Value: "stream ends within a message"}})
		return
	}
	g.st.Finish(okTrailers)
}

var okTrailers = []h2.Field{{Name: "grpc-status", Value: grpcOK}}

// Closed implements h2.StreamHandler.
func (g *grpcStream) Closed(err error) {
	var se *h2.StreamError
	if errors.As(err, &se) && se.Breach != "" {
		g.frontend.bad(err)
	}
	g.over()
	g.s.m.grpcConns.With("Proxy").Dec()
	if !g.ended {
		g.s.m.frontendsLost.Inc()
	}
}

// over ends what the stream carries. What the frontend sent before arrives.
func (g *grpcStream) over() {
	g.mu.Lock()
	dials, conns := g.dials, g.conns
	g.openedLocked()
	g.dials, g.conns = map[int64]*grpcConn{}, map[int64]*grpcConn{}
	g.closed = true
	g.mu.Unlock()
	for _, c := range dials {
		c.cancel()
	}
	if len(conns) > 0 {
		g.frontend.cut.Store(true)
	}
	for _, c := range conns {
		c.frontendGone()
	}
}

// HandleData implements wire.Handler. Pieces of one connection are gathered.
func (g *grpcStream) HandleData(id int64, piece []byte) error {
	g.payload += int64(len(piece))
	if g.acc != nil && g.accID != id {
		g.flushAcc()
	}
	for len(piece) > 0 {
		if g.acc == nil {
			g.acc, g.accID = buffer.Get(gather(len(piece))), id
		}
		n := g.acc.Append(piece)
		if piece = piece[n:]; len(piece) > 0 {
			g.flushAcc()
		}
	}
	return nil
}

// gather is the size of the chunk in which a first piece is put: more will
// follow if the piece is large.
func gather(n int) int {
	if n >= 4096 {
		return buffer.MaxPayload
	}
	return n
}

func (g *grpcStream) flushAcc() {
	if g.acc == nil {
		return
	}
	chunk := g.acc
	g.acc = nil
	g.from[wire.Data].Inc()
	g.mu.Lock()
	c := g.conns[g.accID]
	g.mu.Unlock()
	if c != nil {
		c.uplink(chunk)
		return
	}
	g.st.Consumed(chunk.Len())
	chunk.Release()
	g.stray(wire.Data, g.accID)
	g.queueClose(g.accID, "unknown connection")
}

// HandlePacket implements wire.Handler.
func (g *grpcStream) HandlePacket(p *wire.Packet) error {
	g.flushAcc()
	g.s.m.observe(g.from, p.Type)
	if p.Type != p.Payload { // upstream ignores it, too
		g.frontend.unknown(!g.unknown, p.Type)
		g.unknown = true
		return nil
	}
	switch p.Type {
	case wire.DialReq:
		return g.dial(p)
	case wire.DialCls:
		g.mu.Lock()
		c := g.dials[p.Random]
		delete(g.dials, p.Random)
		g.mu.Unlock()
		if c != nil {
			g.st.Waste()
			c.cancel()
		}
		g.finishIfUnused()
	case wire.CloseReq:
		g.closeReq(p.ConnID)
	default:
		g.frontend.bad(fmt.Errorf("%s, which a client never sends", p.Type))
	}
	return nil
}

var errDialTwice = errors.New("dial number is used twice")

func (g *grpcStream) dial(p *wire.Packet) error {
	if err := checkAddress(p.Address); err != nil {
		g.frontend.bad(fmt.Errorf("dial: %w", err))
	}
	c := &grpcConn{g: g, random: p.Random}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	if g.dials[p.Random] != nil {
		g.mu.Unlock()
		return errDialTwice
	}
	further := g.used
	if further {
		g.frontend.several.Store(true)
	}
	g.used = true
	g.dials[p.Random] = c
	g.mu.Unlock()
	if further && g.s.goingDown() { // a first dial was let in before
		e := tunnel.Errorf(tunnel.CodeNoAgent, "server is stopping, dial through another")
		g.s.countFailure("no_agent", e.Code)
		c.Dialed(nil, e)
		return nil
	}
	pending := g.s.DialTraced(p.Address, c, g.trace)
	g.mu.Lock()
	g.openedLocked()
	g.mu.Unlock()
	c.mu.Lock()
	c.pending = pending
	gone := c.frontendLeft()
	c.mu.Unlock()
	if gone {
		pending.Cancel()
	}
	return nil
}

// openedLocked notes that the first dial is counted elsewhere, or none will come.
func (g *grpcStream) openedLocked() {
	if !g.known {
		g.known = true
		g.s.opening.Add(-1)
	}
}

func (g *grpcStream) closeReq(id int64) {
	g.mu.Lock()
	c := g.conns[id]
	delete(g.conns, id)
	g.mu.Unlock()
	if c == nil {
		g.stray(wire.CloseReq, id)
		g.queueClose(id, "")
		return
	}
	c.frontendGone()
	g.queueClose(id, "")
	g.finishIfUnused()
}

// stray counts a packet for a connection that is not there. One that is over can
// have been closed by both ends at once; one that never was is the frontend's fault.
func (g *grpcStream) stray(t wire.Type, id int64) {
	g.s.m.strays.With("client", t.String()).Inc()
	g.mu.Lock()
	never := g.first == 0 || id < g.first || id > g.last
	told := g.told
	g.told = g.told || never
	g.mu.Unlock()
	if never && !told {
		g.frontend.bad(fmt.Errorf("%s for connection %d, which the stream never had", t, id))
	}
}

// queueClose tells the frontend that a connection is over. The caller sees to it
// that it is sent, together with the end of the stream if that follows.
func (g *grpcStream) queueClose(id int64, reason string) {
	p := &wire.Packet{Payload: wire.CloseRsp, ConnID: id, Error: reason}
	g.s.m.observe(g.to, p.Payload)
	g.st.QueueControl(wire.AppendMessage(nil, p))
}

func (g *grpcStream) send(p *wire.Packet) {
	g.s.m.observe(g.to, p.Payload)
	g.st.SendControl(wire.AppendMessage(nil, p))
}

// finishIfUnused ends the stream when nothing is left on it, as upstream
// server does.
func (g *grpcStream) finishIfUnused() {
	g.mu.Lock()
	done := g.used && len(g.dials) == 0 && len(g.conns) == 0
	g.mu.Unlock()
	if done {
		g.st.Finish(okTrailers)
	}
}

// remove forgets a connection that the far side has closed.
func (g *grpcStream) remove(c *grpcConn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conns[c.id] != c {
		return false
	}
	delete(g.conns, c.id)
	return true
}

// WindowUpdate is called when the frontend has read a good part of the stream.
func (g *grpcStream) WindowUpdate() {
	if g.holding.Load() == 0 {
		return
	}
	g.mu.Lock()
	var waiting []*grpcConn
	for _, c := range g.conns {
		waiting = append(waiting, c)
	}
	g.mu.Unlock()
	for _, c := range waiting {
		c.frontendReads()
	}
}
