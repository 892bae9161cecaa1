// SPDX-License-Identifier: Apache-2.0

// Package upstream carries tunneled connections over a stream of upstream's
// protocol, for a peer that is upstream's server or agent. The protocol has no flow
// control per connection and no half-close. This package isolates connections from
// each other as far as that allows: it never blocks the shared reader, it slows a
// peer down only as far as the peer's other connections have little to do, and it
// resets a connection whose receiver exceeds ConnBuffer (hold.go).
package upstream

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/membudget"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// Config limits what a session queues for slow receivers. A zero field takes its
// default.
type Config struct {
	// ConnBuffer is the number of bytes held for one connection. Default [settings.DefaultConnBuffer].
	ConnBuffer int
	// MaxConns is the limit for dials and connections that have not ended. Beyond it,
	// Dial fails with tunnel.ErrFull. Default 0, no limit.
	MaxConns int
	// Pause stops reading the stream while its receivers hold more than the window,
	// as upstream does, instead of resetting the slowest receivers.
	Pause bool
	// HoldClose is how long a server delays its close after data, so that an agent
	// can pass the data on first. Default 0.5 s.
	HoldClose time.Duration
	// OnOverflow is called for each connection that is reset.
	OnOverflow func()
	// OnDial is called for DIAL_REQ; agent side only.
	OnDial func(c *Conn, address string)
	// OnDrain is called for DRAIN; server side only.
	OnDrain func()
	// OnHeaders gets the response headers; agent side only.
	OnHeaders func(fields []h2.Field)
	// OnClosed is called when the stream is over.
	OnClosed func(err error)
	// OnBad is called for a protocol violation. The stream ends if the session cannot
	// continue to read it. first reports that this is the first violation of its
	// kind.
	OnBad func(err error, first bool)
	// OnStray is called for a packet for a connection that is closed or, the first
	// time, for one that never existed.
	OnStray func(t wire.Type, id int64, never bool)
	// OnUnknown is called for a packet of an unknown type, or without the message of
	// its type. The session skips the packet. first reports that it is the stream's
	// first one.
	OnUnknown func(t wire.Type, first bool)
	// Observe counts packets, received or sent.
	Observe func(received bool, t wire.Type)
}

// maxQueued is the number of bytes a connection may have queued for sending.
const maxQueued = 4 * buffer.MaxSize

// maxInFlight is the number of bytes that the session hands to HTTP/2 ahead of its
// windows. The rest waits in the queues of the connections, which the session serves
// fairly.
const maxInFlight = 2 * buffer.MaxSize

// ErrOverflow reports that a slow receiver exceeded ConnBuffer.
var ErrOverflow = fmt.Errorf("%w: its peer has no flow control", tunnel.ErrEvicted)

// Session is one stream of upstream's protocol between server and agent.
//
// Its flags are independent. The flags unknown, sawMisdirected, sawUnknownID and sawReusedID each record that one
// kind of event has occurred, as only the first one is logged. The flag pumping changes with
// what there is to send, and closed is set at the end.
type Session struct {
	cfg    Config
	st     *h2.Stream
	server bool // this side is the server, which dials
	dec    wire.StreamDecoder
	acc    *buffer.Chunk // data being gathered for accID
	accID  int64
	// payload counts the bytes of data that the decoder has handed on.
	payload int64
	unknown bool // got a packet of an unknown type

	mu             sync.Mutex
	account        *membudget.Account
	flushing       map[*Conn]struct{} // closed, but the data they received is not passed on yet
	conns          map[int64]*Conn
	dials          map[int64]*Conn
	nextID         int64   // the highest connection ID
	sawMisdirected bool    // got a packet that its peer must not send
	sawUnknownID   bool    // reported a packet for a connection that never existed
	sawReusedID    bool    // reported an ID that was used twice
	ready          []*Conn // connections with queued data, in turn
	inFlight       int
	given          int64     // bytes handed to HTTP/2 so far; all but inFlight have been written
	sentAt         time.Time // when some of them were written
	pumping        bool      // a goroutine is in pump, or about to be
	hold           hold
	closed         bool // the stream is over
}

// New returns a session over an HTTP/2 stream, which must get it as its handler.
func New(st *h2.Stream, server bool, cfg Config) *Session {
	if cfg.ConnBuffer == 0 {
		cfg.ConnBuffer = settings.DefaultConnBuffer
	}
	if cfg.HoldClose == 0 {
		cfg.HoldClose = holdClose
	}
	if cfg.OnBad == nil {
		cfg.OnBad = func(error, bool) {}
	}
	if cfg.OnStray == nil {
		cfg.OnStray = func(wire.Type, int64, bool) {}
	}
	if cfg.OnUnknown == nil {
		cfg.OnUnknown = func(wire.Type, bool) {}
	}
	if cfg.Observe == nil {
		cfg.Observe = func(bool, wire.Type) {}
	}
	return &Session{cfg: cfg, st: st, server: server, flushing: map[*Conn]struct{}{}, conns: map[int64]*Conn{}, dials: map[int64]*Conn{}}
}

// SetStream sets the stream, for a session that was created before its stream.
func (s *Session) SetStream(st *h2.Stream) { s.st = st }

// Len returns the number of connections, including pending dials.
func (s *Session) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns) + len(s.dials)
}

// Each calls f with the receiver of each connection. f must not call methods of the session or of its connections.
func (s *Session) Each(f func(tunnel.Receiver)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		f(c.r)
	}
}

// Headers implements h2.StreamHandler.
func (s *Session) Headers(fields []h2.Field) {
	if s.cfg.OnHeaders != nil {
		s.cfg.OnHeaders(fields)
	}
}

// Data implements h2.StreamHandler.
func (s *Session) Data(p []byte) error {
	before := s.payload
	err := s.dec.Feed(p, s)
	if err != nil {
		s.cfg.OnBad(err, true)
	}
	if s.cfg.Pause {
		s.st.Consumed(len(p) - int(s.payload-before)) // the payload follows later
	} else {
		s.openWindow(len(p))
	}
	return err
}

// Flush passes on what was gathered from one read.
func (s *Session) Flush() { s.flushAcc() }

// End implements h2.StreamHandler. An upstream peer that ends its direction has gone.
func (s *Session) End() { s.fail(tunnel.ErrLinkClosed) }

// Closed implements h2.StreamHandler.
func (s *Session) Closed(err error) {
	var se *h2.StreamError
	if errors.As(err, &se) && se.Breach != "" {
		s.cfg.OnBad(err, true)
	}
	s.fail(err)
}

func (s *Session) fail(err error) {
	if err == nil {
		err = tunnel.ErrLinkClosed
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	var all []*Conn
	for _, c := range s.conns {
		all = append(all, c)
	}
	for _, c := range s.dials {
		all = append(all, c)
	}
	for c := range s.flushing {
		c.passedOnLocked(tunnel.All)
	}
	s.mu.Unlock()
	for _, c := range all {
		c.abort(tunnel.ErrLinkClosed)
	}
	if s.cfg.OnClosed != nil {
		s.cfg.OnClosed(err)
	}
}

// Sent implements h2.Sender. HTTP/2 calls it with its connection's lock held, so pump
// runs in its own goroutine.
func (s *Session) Sent(n int) {
	s.mu.Lock()
	s.inFlight -= n
	s.sentAt = time.Now()
	start := !s.pumping && len(s.ready) > 0 && s.inFlight < maxInFlight
	if start {
		s.pumping = true
	}
	s.mu.Unlock()
	if start {
		go s.pump()
	}
}

// pump hands queued data to HTTP/2, one chunk of each connection in turn.
func (s *Session) pump() {
	for {
		s.mu.Lock()
		if len(s.ready) == 0 || s.inFlight >= maxInFlight || s.closed {
			s.pumping = false
			s.mu.Unlock()
			return
		}
		c := s.ready[0]
		s.ready = s.ready[1:]
		chunk, end, wake := c.nextLocked()
		s.mu.Unlock()
		if chunk != nil {
			s.cfg.Observe(false, wire.Data)
			if n := chunk.Len(); !s.st.SendData(c.id, s, chunk) {
				s.Sent(n)
			}
		}
		if end {
			s.sendClose(c.id, "")
		}
		if wake {
			c.r.Writable()
		}
	}
}

func (s *Session) kick() {
	s.mu.Lock()
	start := !s.pumping && len(s.ready) > 0
	if start {
		s.pumping = true
	}
	s.mu.Unlock()
	if start {
		s.pump()
	}
}

func (s *Session) send(p *wire.Packet) {
	s.cfg.Observe(false, p.Payload)
	s.st.SendControl(wire.AppendMessage(nil, p))
}

// sendClose closes a connection with the packet of this side: CLOSE_REQ for a server,
// CLOSE_RSP for an agent.
func (s *Session) sendClose(id int64, reason string) {
	if s.server {
		s.send(&wire.Packet{Payload: wire.CloseReq, ConnID: id})
	} else {
		s.send(&wire.Packet{Payload: wire.CloseRsp, ConnID: id, Error: reason})
	}
}

// Drain asks the server to send no more dials; agent side only.
func (s *Session) Drain() { s.send(&wire.Packet{Payload: wire.Drain}) }
