// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/upstream"
)

// modelAgent is an agent of TestDialModel: it does what the schedule says.
type modelAgent struct {
	gate   *gate
	drain  func()
	end    func()
	good   time.Time // since when it answers, or not
	drains bool      // the server knows
	leaves bool      // it has begun to drain, and maybe could not send DRAIN yet

	mu    sync.Mutex
	asked []*ask
	over  bool // its connection has ended
}

// ask is a dial at an agent, and then the agent's end of the connection.
type ask struct {
	by     *modelAgent
	number int // of the dial
	st     interface {
		tunnel.Stream
		Accept()
		Refuse(e *tunnel.DialError)
	}

	// Guarded by by.mu.
	answered, accepted, ended bool
}

// numberOf is the number of the dial to an address.
func numberOf(address string) int {
	_, port, _ := strings.Cut(address, ":")
	n, _ := strconv.Atoi(port)
	return n
}

func addressOf(number int) string { return "192.0.2.1:" + strconv.Itoa(number) }

func (a *ask) Dialed(tunnel.Stream, error) {}
func (a *ask) Data(cs ...*buffer.Chunk)    { buffer.Release(cs) }
func (a *ask) Writable()                   {}
func (a *ask) End()                        { a.finish() }
func (a *ask) Aborted(error)               { a.finish() }

func (a *ask) finish() {
	a.by.mu.Lock()
	a.ended = true
	a.by.mu.Unlock()
}

// answer answers the dial.
func (a *ask) answer(accept bool) {
	a.by.mu.Lock()
	a.answered, a.accepted = true, accept
	a.by.mu.Unlock()
	if accept {
		a.st.Accept()
	} else {
		a.st.Refuse(tunnel.Errorf(tunnel.CodeRefused, "by the test"))
	}
}

// open are the asks that are not answered, or whose connection goes on.
func (m *modelAgent) open(answered bool) (open []*ask) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.asked {
		if !a.ended && a.answered == answered && (!answered || a.accepted) {
			open = append(open, a)
		}
	}
	return open
}

func (m *modelAgent) add(a *ask) {
	m.mu.Lock()
	m.asked = append(m.asked, a)
	m.mu.Unlock()
}

func (m *modelAgent) isOver() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over
}

func (m *modelAgent) noteOver() {
	m.mu.Lock()
	m.over = true
	m.mu.Unlock()
}

// gate is the agent's end of its connection to the server. While it is shut, the agent
// gets nothing and sends nothing, as when its process is stopped.
type gate struct {
	net.Conn
	mu           sync.Mutex
	moved        sync.Cond
	shut, closed bool
}

func (g *gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.shut && !g.closed {
		g.moved.Wait()
	}
}

func (g *gate) set(shut bool) { g.mu.Lock(); g.shut = shut; g.moved.Broadcast(); g.mu.Unlock() }

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

func (g *gate) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	g.pass()
	return n, err
}

func (g *gate) Write(p []byte) (int, error) {
	g.pass()
	return g.Conn.Write(p)
}

func (g *gate) Close() error {
	g.mu.Lock()
	g.closed = true
	g.moved.Broadcast()
	g.mu.Unlock()
	return g.Conn.Close()
}

// ends are the two ends of a connection that buffers what a socket would.
func ends() (near *gate, far net.Conn) {
	l := bufconn.Listen(1 << 20)
	come := make(chan net.Conn)
	go func() { c, _ := l.Accept(); come <- c }()
	c, _ := l.Dial()
	near = &gate{Conn: c}
	near.moved.L = &near.mu
	far = <-come
	_ = l.Close()
	return near, far
}

// linkAgent connects an agent with our own protocol.
func (s *Server) linkAgent(id string) *modelAgent {
	near, far := ends()
	m := &modelAgent{gate: near, good: time.Now()}
	l := link.New(near, 256<<10, link.Config{OnDial: func(st *link.Stream, address string) {
		a := &ask{by: m, number: numberOf(address), st: st}
		st.SetReceiver(a)
		m.add(a)
	}})
	m.drain, m.end = l.Drain, l.Close
	go func() { _ = l.Run(); m.noteOver() }()
	s.wg.Go(func() {
		s.runLink(far, &plainConn{far}, &link.Hello{AgentID: id, Window: 256 << 10}, Identifiers{}, func() {})
		_ = far.Close()
	})
	return m
}

// upstreamAgent connects one with upstream's protocol.
func (s *Server) upstreamAgent(id string) *modelAgent {
	near, far := ends()
	m := &modelAgent{gate: near, good: time.Now()}
	hs := h2.NewServer(far, h2.Config{StreamWindow: 1 << 20, OnStream: func(st *h2.Stream, _ []h2.Field) {
		b := s.newBackend(id, Identifiers{}, far)
		b.h2 = st.Conn()
		joined := make(chan struct{})
		cfg := s.sessionConfig(b)
		cfg.OnClosed = func(err error) { s.wg.Go(func() { <-joined; s.leave(b, "upstream", err) }) }
		b.session = upstream.New(st, true, cfg)
		st.SetHandler(b.session)
		st.WriteHeaders([]h2.Field{{Name: ":status", Value: "200"}})
		s.join(b, "upstream")
		close(joined)
	}})
	ha := h2.NewClient(near, h2.Config{StreamWindow: 1 << 20})
	session := upstream.New(nil, false, upstream.Config{OnDial: func(c *upstream.Conn, address string) {
		a := &ask{by: m, number: numberOf(address), st: c}
		c.SetReceiver(a)
		m.add(a)
	}})
	session.SetStream(ha.Open([]h2.Field{{Name: ":method", Value: "POST"}, {Name: ":path", Value: "/"}}, session))
	m.drain, m.end = session.Drain, ha.Close
	s.wg.Go(func() { _ = hs.Serve() })
	go func() { _ = ha.Serve(); m.noteOver() }()
	return m
}

func agentID(n int) string { return "agent-" + strconv.Itoa(n) }
