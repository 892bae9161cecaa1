// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/httpconnect"
	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/endpoint"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

// headerTimeout is for how long a frontend may take to send its request, or with gRPC to
// open its first stream.
const headerTimeout = 60 * time.Second

// serveConnect serves one HTTP CONNECT frontend. After the handshake the
// connection is copied byte by byte.
func (s *Server) serveConnect(nc net.Conn) {
	s.m.httpConns.Inc()
	defer s.m.httpConns.Dec()
	_ = nc.SetReadDeadline(time.Now().Add(headerTimeout))
	c := s.connectFrontend(nc)
	if c == nil {
		return
	}
	defer c.dialing()
	request, status, err := c.readRequest()
	if err != nil {
		if status != 0 {
			s.badFrontend(nc, fmt.Errorf("HTTP CONNECT: %w", err))
			_, _ = nc.Write(httpconnect.Refusal(status, err.Error(), err.Error()))
		}
		s.untrack(c)
		_ = nc.Close()
		return
	}
	c.begun()
	c.run(request)
}

// Connect implements state.Connector, for clients whose request another listener has read. A server that stops refuses
// them, because another one can take them: that listener is open until the server has stopped.
func (s *Server) Connect(nc net.Conn, ahead []byte, address string, agent *state.Agent, parent string) {
	s.m.httpConns.Inc()
	defer s.m.httpConns.Dec()
	if s.goingDown() {
		e := tunnel.Errorf(tunnel.CodeNoAgent, "server is stopping, dial through another")
		s.countFailure("no_agent", e.Code)
		_, _ = nc.Write(httpconnect.Refusal(statusOf(e.Code), dialReason(e), e.Message))
		_ = nc.Close()
		return
	}
	c := s.connectFrontend(nc)
	if c == nil {
		return
	}
	defer func() { <-c.over }() // the client may end its direction first
	defer c.dialing()
	if len(ahead) > 0 {
		c.in.Unread(ahead)
	}
	c.begun()
	c.run(connectRequest{address: address, trace: traceparent.Parse(parent), agent: agent})
}

// connectFrontend takes up a frontend. It closes the connection and returns nil if the server has stopped.
func (s *Server) connectFrontend(nc net.Conn) *connectFrontend {
	c := &connectFrontend{s: s, in: netx.New(nc), answered: make(chan bool, 1), over: make(chan struct{})}
	if !s.track(c) {
		_ = nc.Close()
		return nil
	}
	s.opening.Add(1)
	c.open.Store(true)
	return c
}

// connectFrontend is one HTTP CONNECT frontend.
type connectFrontend struct {
	s        *Server
	in       *netx.Conn
	end      *endpoint.End
	answered chan bool     // whether the dial succeeded
	over     chan struct{} // closed by ended
	overOnce sync.Once
	mu       sync.Mutex
	state    connectState
	spoke    atomic.Bool // the frontend has sent tunneled bytes
	open     atomic.Bool // counted in Server.opening
}

// connectState is what has become of an HTTP CONNECT frontend. It only grows.
type connectState uint8

const (
	connectAwaited connectState = iota // its request is not there yet
	connectDialing
	connectUp   // the dial succeeded, and the connection is counted
	connectGone // it has gone before the dial succeeded
)

// ended notes that the connection, or its dial, has ended.
func (c *connectFrontend) ended() {
	c.s.untrack(c)
	c.overOnce.Do(func() { close(c.over) })
}

// dialing notes that the frontend has dialed, or will not.
func (c *connectFrontend) dialing() {
	if c.open.CompareAndSwap(true, false) {
		c.s.opening.Add(-1)
	}
}

// goAway gives a frontend that has not asked for anything yet little time for that: what it
// began before the server was asked to stop is let through.
func (c *connectFrontend) goAway() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == connectAwaited {
		_ = c.in.Net().SetReadDeadline(time.Now().Add(c.s.cfg.FirstStream))
	}
}

// begun notes that the frontend's request is there.
func (c *connectFrontend) begun() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = connectDialing
	_ = c.in.Net().SetReadDeadline(time.Time{})
}

func (c *connectFrontend) abort() {
	if c.isUp() {
		c.end.Abort("server stops")
		return
	}
	netx.Abort(c.in.Net())
}

// run dials and then carries what the frontend sends.
func (c *connectFrontend) run(request connectRequest) {
	cfg := c.s.cfg.Pipe
	cfg.FirstData, cfg.GiveUp = c.holdFirst, true
	c.end = endpoint.New(c.in, cfg)
	c.end.Out().Took = c.s.m.wrote
	c.end.OnDialed = c.dialed
	c.end.OnClosed = func(error) {
		if c.isUp() {
			c.s.endConn()
		}
		c.ended()
	}
	p := c.s.dialThrough(request.agent, request.address, c.end, request.trace)
	c.dialing()
	// Reading now shows a frontend that goes away during the dial.
	chunk, err := c.in.ReadChunk(buffer.MaxPayload)
	if err != nil {
		c.lost(p, err)
		return
	}
	if !<-c.answered {
		chunk.Release()
		return
	}
	c.spoke.Store(true)
	c.end.SendAll(chunk)
	c.end.Run()
}

// lost handles a frontend whose end came before it sent anything.
func (c *connectFrontend) lost(p *Pending, err error) {
	c.mu.Lock()
	up := c.state == connectUp
	if !up {
		c.state = connectGone
	}
	c.mu.Unlock()
	if up {
		c.end.ReadEnded(err)
		return
	}
	p.Cancel()
	c.ended()
	_ = c.in.Net().Close()
}

func (c *connectFrontend) isUp() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == connectUp
}

// dialed answers the frontend. It runs on the goroutine that reads the link, or
// on the frontend's own when the dial fails at once.
func (c *connectFrontend) dialed(st tunnel.Stream, err error) {
	c.mu.Lock()
	late := err == nil && c.state == connectGone
	if err == nil && !late {
		c.state = connectUp
	}
	c.mu.Unlock()
	if late {
		c.s.endConn()
		st.Reset("client is gone", false)
		return
	}
	if err != nil {
		var de *tunnel.DialError
		if !errors.As(err, &de) {
			de = &tunnel.DialError{Message: err.Error()}
		}
		_ = c.end.Out().Write(httpconnect.Refusal(statusOf(de.Code), dialReason(de), de.Message))
		c.end.Out().Close()
		c.ended()
		c.answered <- false
		return
	}
	_ = c.end.Out().Write([]byte("HTTP/1.1 200 Connection Established\r\n\r\n"))
	c.answered <- true
}

const (
	// holdPoll is the pause between two looks whether a frontend has read its 200. Once
	// that has taken longer than holdPrompt, the pause is an eighth of the time so far,
	// up to holdPollMax: a frontend that never reads costs next to nothing.
	holdPoll    = 200 * time.Microsecond
	holdPrompt  = 50 * time.Millisecond
	holdPollMax = time.Second
	// holdSettle is how long after that its bytes follow: Linux goes on to what comes next
	// in the read that has just taken the 200.
	holdSettle = 500 * time.Microsecond
	// holdBlind is for how long a destination that speaks first waits where it
	// cannot be seen whether the frontend has read: on TCP.
	holdBlind = 5 * time.Millisecond
)

// holdFirst keeps the destination's first bytes back until the frontend has read
// the answer to its request: kube-apiserver fails if both come with one read. A
// frontend that does not read its 200 would not read the bytes behind it either,
// so there is no limit on how long.
func (c *connectFrontend) holdFirst() bool {
	if c.spoke.Load() {
		return false
	}
	go func() {
		c.awaitRead()
		c.end.Open()
	}()
	return true
}

// awaitRead returns when the frontend has read all that was sent to it, has spoken
// or is gone.
func (c *connectFrontend) awaitRead() {
	if c.in.Unsent() < 0 {
		time.Sleep(holdBlind)
		return
	}
	pollWhile(func() bool { return !c.spoke.Load() && c.in.Unsent() > 0 })
	if !c.spoke.Load() {
		time.Sleep(holdSettle)
	}
}

// pollWhile returns when waits returns false.
func pollWhile(waits func() bool) {
	for start := time.Now(); waits(); {
		pause := holdPoll
		if waited := time.Since(start); waited > holdPrompt {
			pause = min(waited/8, holdPollMax)
		}
		time.Sleep(pause)
	}
}
