package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/link"
)

// moreHandshakes is how many peers may be in their TLS handshake beside as many agents as
// there is room for, so that agents beyond the limit are told so, in TLS.
const moreHandshakes = 1000

// serveAgent serves one connection on the agents' port, with the protocol that
// the TLS handshake chose.
func (s *Server) serveAgent(raw net.Conn, cfg *tls.Config) {
	pc := &plainConn{raw}
	if !s.track(pc) {
		_ = raw.Close()
		return
	}
	defer s.untrack(pc)
	room := max(0, int64(s.cfg.MaxAgents)-s.seats.Get()-s.strangers.Load())
	if !s.shaking.IncBelow(int(room) + moreHandshakes) {
		s.refuse(raw, "limit", errTooManyHandshakes)
		_ = raw.Close()
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.HandshakeTimeout)
	turn := &turn{of: s.turns, ctx: ctx}
	batch := link.NewBatchConn(raw, turn)
	defer func() { _ = batch.Close() }()
	nc := tls.Server(batch, s.agentTLS(cfg))
	err := nc.HandshakeContext(ctx)
	turn.end()
	cancel()
	s.shaking.Dec()
	if err != nil {
		s.refuse(raw, "tls", err)
		return
	}
	if nc.ConnectionState().NegotiatedProtocol == link.ALPN {
		s.serveLink(nc, pc)
		return
	}
	s.serveReference(nc, pc)
}

// agentTLS adds the protocols to the configuration.
func (s *Server) agentTLS(cfg *tls.Config) *tls.Config {
	cfg = cfg.Clone()
	cfg.DynamicRecordSizingDisabled = true
	cfg.NextProtos = []string{link.ALPN, "h2"}
	if s.cfg.ReferenceOnly {
		cfg.NextProtos = cfg.NextProtos[1:]
	}
	if get := cfg.GetConfigForClient; get != nil {
		protos := cfg.NextProtos
		cfg.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := get(h)
			if c == nil || err != nil {
				return c, err
			}
			c = c.Clone()
			c.NextProtos, c.DynamicRecordSizingDisabled = protos, true
			return c, nil
		}
	}
	return cfg
}

func (s *Server) refuse(nc net.Conn, reason string, err error) {
	peer := nc.RemoteAddr().String()
	s.said.Addf(1, peer, "agent at "+peer+" refused", "%s: %v", reason, err)
	s.m.refused.With(reason).Inc()
}

var (
	errTooManyAgents     = errors.New("server has as many agents as it may have")
	errTooManyHandshakes = errors.New("server has as many connections without a TLS handshake as it may have")
	errStopping          = errors.New("server is stopping")
)

// enter counts a stranger, unless there is no room for another agent. Agents that prove
// who they are do not wait for strangers to leave: only those that come behind them do.
func (s *Server) enter() bool {
	n := s.strangers.Add(1)
	if s.seats.Get()+n > int64(s.cfg.MaxAgents) {
		s.strangers.Add(-1)
		return false
	}
	return true
}

// serveLink serves an agent with our own protocol.
func (s *Server) serveLink(nc *tls.Conn, pc *plainConn) {
	defer func() { _ = nc.Close() }()
	room := s.enter()
	known := sync.OnceFunc(func() {
		if room {
			s.strangers.Add(-1)
		}
	})
	defer known()
	hello := s.readHello(nc, room)
	if hello == nil {
		return
	}
	s.coming.Add(1)
	come := sync.OnceFunc(func() { s.coming.Add(-1) })
	defer come()
	ids, reason, err := s.admitLink(nc, hello)
	if err != nil {
		s.refuseLink(nc, reason, err)
		return
	}
	defer s.seats.Dec()
	known()
	err = link.SendWelcome(nc, link.Welcome{ServerID: s.cfg.ServerID, ServerCount: s.cfg.ServerCount, Window: s.cfg.Link.Window, Links: s.cfg.Links})
	if err != nil {
		return
	}
	_ = nc.SetDeadline(time.Time{})
	s.runLink(nc, pc, hello, ids, come)
}

// readHello returns an agent's introduction, or nil when the agent is not wanted. One
// for which there is no room may introduce itself, in little time, to be told why.
func (s *Server) readHello(nc *tls.Conn, room bool) *link.Hello {
	patience := s.cfg.HandshakeTimeout
	if !room {
		patience = min(patience, refuseTime)
	}
	_ = nc.SetDeadline(time.Now().Add(patience))
	hello, err := link.ReadHello(nc)
	switch {
	case err == nil && s.duplicate(&hello):
		link.SendRefuse(nc, link.ReasonDuplicate)
	case !room:
		s.refuseLink(nc, "limit", errTooManyAgents)
	case err != nil:
		s.m.badInput.With("agent").Inc()
		s.refuse(nc, "handshake", err)
	default:
		return &hello
	}
	return nil
}

// refuseLink refuses an agent that has introduced itself in our own protocol.
func (s *Server) refuseLink(nc *tls.Conn, reason string, err error) {
	s.refuse(nc, reason, err)
	link.SendRefuse(nc, reason+": "+err.Error())
}

// runLink carries an agent's link. joined is called when dials can go there.
func (s *Server) runLink(nc net.Conn, pc *plainConn, hello *link.Hello, ids Identifiers, joined func()) {
	b := s.newBackend(hello.AgentID, ids, nc)
	cfg := s.cfg.Link
	cfg.MaxStreams = s.cfg.MaxPerAgent
	cfg.OnDrain = func() {
		if !b.draining.Swap(true) { // once: an agent that does not read could repeat it
			b.link.Drained()
		}
	}
	cfg.OnViolation = func(rule string, first bool) { s.badAgent(b, first, "%s", rule) }
	cfg.OnUnknown = func(typ byte, first bool) {
		s.m.unknownFrames.Inc()
		if first {
			s.said.Addf(1, b.peer, fmt.Sprintf("agent %q at %s", b.agentID, b.peer), "skipping frames of unknown type %d: it may be newer", typ)
		}
	}
	cfg.Counters = link.Counters{Sent: s.m.segments["to_agent"], Received: s.m.segments["from_agent"]}
	b.link = link.New(nc, hello.Window, cfg)
	lc := &linkConn{s, b}
	if !s.trackInstead(pc, lc) {
		return
	}
	defer s.untrack(lc)
	s.join(b, "fairlead")
	joined()
	err := b.link.Run()
	var pe *link.ProtocolError
	if errors.As(err, &pe) {
		s.badAgent(b, true, "%v", err)
	}
	s.leave(b, "fairlead", err)
}

// badAgent counts what an agent sent against the rules, and logs it if it is the
// first of its kind.
func (s *Server) badAgent(b *Backend, first bool, format string, args ...any) {
	if first {
		s.said.Addf(1, b.peer, fmt.Sprintf("agent %q at %s", b.agentID, b.peer), format, args...)
	}
	s.m.badInput.With("agent").Inc()
}

// duplicate tells whether the agent would rather not have this server.
func (s *Server) duplicate(h *link.Hello) bool {
	if h.Only != "" {
		return !slices.Contains(strings.Split(h.Only, ","), s.cfg.ServerID)
	}
	return slices.Contains(strings.Split(h.Have, ","), s.cfg.ServerID)
}

func (s *Server) newBackend(id string, ids Identifiers, nc net.Conn) *Backend {
	return &Backend{agentID: id, ids: ids, peer: nc.RemoteAddr().String(), most: s.cfg.MaxPerAgent, dials: map[*attempt]time.Time{}}
}

func (s *Server) join(b *Backend, protocol string) {
	b.account = s.book.Open(b.key(), b.holder())
	s.reg.add(b)
	s.m.links.With(protocol).Inc()
	s.m.grpcConns.With("Connect").Inc()
	s.cfg.Logf(2, "agent %q at %s connected (%s)", b.agentID, b.peer, protocol)
}

// leave forgets an agent's connection. Its dials go to other agents; the link
// has ended its streams.
func (s *Server) leave(b *Backend, protocol string, err error) {
	s.reg.remove(b)
	b.account.Leave(b.holder())
	s.lost.Store(time.Now().UnixNano())
	s.m.links.With(protocol).Dec()
	s.m.grpcConns.With("Connect").Dec()
	if err != nil && !errors.Is(err, io.EOF) {
		s.m.streamErrors.With("from_agent", "Unavailable", "Unknown").Inc()
	}
	s.cfg.Logf(2, "agent %q at %s is gone: %v", b.agentID, b.peer, err)
	for _, at := range b.overdue(-1) {
		at.retry()
	}
}

// linkConn lets Shutdown end a link.
type linkConn struct {
	s *Server
	b *Backend
}

func (l *linkConn) goAway() { l.b.link.GoingAway() }

// abort waits for no agent: one that takes nothing would hold up the others.
func (l *linkConn) abort() { l.s.wg.Go(l.b.link.Close) }
