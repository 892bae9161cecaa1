// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"math/rand/v2"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

// HandleData implements wire.Handler. It gathers consecutive pieces of one connection.
func (s *Session) HandleData(id int64, piece []byte) error {
	s.payload += int64(len(piece))
	if s.acc != nil && (s.accID != id || len(s.acc.Free()) == 0) {
		s.flushAcc()
	}
	for len(piece) > 0 {
		if s.acc == nil {
			s.acc, s.accID = buffer.Get(min(len(piece)*2, buffer.MaxPayload)), id
		}
		n := s.acc.Append(piece)
		if piece = piece[n:]; len(piece) > 0 {
			s.flushAcc()
		}
	}
	return nil
}

func (s *Session) flushAcc() {
	if s.acc == nil {
		return
	}
	chunk := s.acc
	s.acc = nil
	s.cfg.Observe(true, wire.Data)
	s.mu.Lock()
	c := s.conns[s.accID]
	if c == nil || c.receiverClosed {
		s.mu.Unlock()
		n := chunk.Len()
		chunk.Release()
		s.consumed(n)
		if c == nil {
			s.stray(wire.Data, s.accID)
			s.closeUnknown(s.accID)
		}
		return
	}
	c.cameLocked(chunk.Len())
	c.gotLocked(chunk.Len())
	c.heard = true
	over := c.held > s.cfg.ConnBuffer && !s.cfg.Pause
	account := s.account
	s.mu.Unlock()
	if over {
		chunk.Release()
		if s.cfg.OnOverflow != nil {
			s.cfg.OnOverflow()
		}
		c.evict(ErrOverflow)
		return
	}
	account.Relieve()
	c.r.Data(chunk)
}

// closeUnknown answers data for an unknown connection with a close. An agent does so only
// for a connection that never existed: for any other it has sent a close already, which
// may still wait after the connection's last data, and which this close must not overtake.
func (s *Session) closeUnknown(id int64) {
	s.mu.Lock()
	known := !s.server && id <= s.nextID
	s.mu.Unlock()
	if id > 0 && !known {
		s.sendClose(id, "unrecognized connectID")
	}
}

// consumed returns bytes to the window if the session waits for the receivers (Pause).
func (s *Session) consumed(n int) {
	if s.cfg.Pause {
		s.st.Consumed(n)
	}
}

// HandlePacket implements wire.Handler.
func (s *Session) HandlePacket(p *wire.Packet) error {
	s.flushAcc()
	s.cfg.Observe(true, p.Type)
	if p.Type != p.Payload { // upstream ignores it, too
		s.cfg.OnUnknown(p.Type, !s.unknown)
		s.unknown = true
		return nil
	}
	if s.server {
		s.fromAgent(p)
	} else {
		s.fromServer(p)
	}
	return nil
}

func (s *Session) fromAgent(p *wire.Packet) {
	switch p.Type {
	case wire.DialRsp:
		s.dialRsp(p)
	case wire.DialCls:
		if c := s.takeDial(p.Random); c != nil {
			c.r.Dialed(nil, tunnel.Errorf(tunnel.CodeAgentGone, "dial closed by the agent"))
		}
	case wire.CloseRsp:
		s.peerClosed(p.ConnID, p.Error)
	case wire.Drain:
		if s.cfg.OnDrain != nil {
			s.cfg.OnDrain()
		}
	default:
		s.misdirected(p.Type)
	}
}

func (s *Session) takeDial(random int64) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.dials[random]
	delete(s.dials, random)
	if c != nil {
		c.answeredLocked()
	}
	return c
}

// dialRsp handles the answer to a dial. A caller that ends the dial concurrently finds
// either the pending dial or the connection ID, never a state in between.
func (s *Session) dialRsp(p *wire.Packet) {
	failed := p.Error != "" || p.ConnID == 0
	s.mu.Lock()
	c := s.dials[p.Random]
	delete(s.dials, p.Random)
	if c != nil {
		c.answeredLocked()
	}
	_, used := s.conns[p.ConnID]
	switch {
	case c == nil:
		s.nextID = max(s.nextID, p.ConnID)
	case failed || used:
		c.state = stateClosed
	default:
		c.id = p.ConnID
		s.conns[c.id] = c
		s.nextID = max(s.nextID, c.id)
	}
	s.mu.Unlock()
	switch {
	case c == nil:
		s.cfg.OnStray(wire.DialRsp, p.ConnID, false) // the dial may have been given up
		if !failed {
			s.sendClose(p.ConnID, "") // the dial was given up
		}
	case failed:
		c.r.Dialed(nil, &tunnel.DialError{Code: CodeOf(p.Error), Message: p.Error})
	case used:
		s.reused("agent gave connection number %d twice", p.ConnID)
		c.r.Dialed(nil, tunnel.Errorf(tunnel.CodeOther, "agent used connection number %d twice", p.ConnID))
	default:
		c.r.Dialed(c, nil)
	}
}

// peerClosed handles the close of a connection by the other side.
func (s *Session) peerClosed(id int64, reason string) {
	s.mu.Lock()
	c := s.conns[id]
	if c == nil {
		s.mu.Unlock()
		s.stray(wire.CloseRsp, id)
		return
	}
	c.endLocked()
	s.mu.Unlock()
	c.ended(reason)
}

// endLocked ends a connection on which the other side neither sends nor reads any more.
// The caller calls ended once it has released mu.
func (c *Conn) endLocked() {
	c.forgetLocked()
	c.dropLocked()
	if c.held > 0 {
		c.s.flushing[c] = struct{}{}
	}
}

// ended tells the receiver what endLocked did.
func (c *Conn) ended(reason string) {
	c.s.openWindow(0)
	if reason != "" {
		c.r.Aborted(&tunnel.ResetError{Reason: reason})
		c.settle()
		return
	}
	c.r.End()
	if pc, ok := c.r.(interface{ PeerClosed() }); ok {
		pc.PeerClosed()
	}
}

func (s *Session) fromServer(p *wire.Packet) {
	switch p.Type {
	case wire.DialReq:
		s.mu.Lock()
		if s.dials[p.Random] != nil { // the server would take its answer for that of the first
			s.mu.Unlock()
			s.reused("server used dial number %d twice", p.Random)
			return
		}
		s.nextID++
		c := &Conn{s: s, id: s.nextID, random: p.Random}
		s.conns[c.id] = c
		s.dials[p.Random] = c
		s.mu.Unlock()
		s.cfg.OnDial(c, p.Address)
		s.mu.Lock()
		gone, r := s.closed, c.r
		s.mu.Unlock()
		if gone && r != nil { // the stream may have ended before the receiver was set
			r.Aborted(tunnel.ErrLinkClosed)
		}
	case wire.DialCls:
		if c := s.takeDial(p.Random); c != nil {
			s.peerClosed(c.id, "dial canceled")
		}
	case wire.CloseReq:
		s.closeReq(p.ConnID)
	default:
		s.misdirected(p.Type)
	}
}

// closeReq answers the server's close of a connection, unless the agent has sent its own
// close already.
func (s *Session) closeReq(id int64) {
	s.mu.Lock()
	c := s.conns[id]
	if c == nil {
		s.mu.Unlock()
		s.stray(wire.CloseReq, id)
		s.sendClose(id, "Unknown connectID")
		return
	}
	said := c.state == stateHalfClosedLocal
	c.state = stateHalfClosedLocal
	s.mu.Unlock()
	if !said {
		s.sendClose(id, "")
	}
	s.mu.Lock()
	if c.state == stateClosed { // this side has ended it meanwhile
		s.mu.Unlock()
		return
	}
	c.endLocked()
	s.mu.Unlock()
	c.ended("")
}

// Dial opens a connection; server side only.
func (s *Session) Dial(address string, r tunnel.Receiver) (*Conn, error) {
	c := &Conn{s: s, random: rand.Int64(), r: r}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, tunnel.ErrLinkClosed
	}
	if s.cfg.MaxConns > 0 && len(s.conns)+len(s.dials) >= s.cfg.MaxConns {
		s.mu.Unlock()
		return nil, tunnel.ErrFull
	}
	s.dials[c.random] = c
	c.askLocked()
	s.mu.Unlock()
	s.send(&wire.Packet{Payload: wire.DialReq, Protocol: "tcp", Address: address, Random: c.random})
	return c, nil
}
