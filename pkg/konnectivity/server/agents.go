// SPDX-License-Identifier: Apache-2.0

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

	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// moreHandshakes is how many TLS handshakes may run in addition to the free places for
// agents. It lets the server tell agents beyond the limit, over TLS, why it refuses them.
const moreHandshakes = 1000

// serveAgent serves one connection on the agents' port, with the protocol that was
// negotiated in the TLS handshake.
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
	if s.cfg.Protocol == settings.ProtocolFairlead && err != nil && strings.Contains(err.Error(), "unsupported application protocols") {
		s.refuse(raw, "protocol", errOwnProtocol) // crypto/tls has told the agent
		return
	}
	if err != nil {
		s.refuse(raw, "tls", err)
		return
	}
	if nc.ConnectionState().NegotiatedProtocol == link.ALPN {
		s.serveLink(nc, pc)
		return
	}
	if s.cfg.Protocol == settings.ProtocolFairlead {
		s.refuse(raw, "protocol", errOwnProtocol)
		_ = nc.Close()
		return
	}
	s.serveUpstream(nc, pc)
}

// agentTLS adds the ALPN protocols to the configuration.
func (s *Server) agentTLS(cfg *tls.Config) *tls.Config {
	cfg = cfg.Clone()
	cfg.DynamicRecordSizingDisabled = true
	cfg.NextProtos = s.cfg.Protocol.NextProtos(link.ALPN)
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
	s.throttled.Add(logthrottle.Event{Level: 1, Peer: peer, Message: "Refused an agent", Who: []any{"address", peer}, Why: []any{"reason", reason}, Err: errors.New(detailed(err))})
	s.m.refused.With(reason).Inc()
}

var (
	errTooManyAgents     = errors.New("server has as many agents as it may have")
	errTooManyHandshakes = errors.New("server has as many connections without a TLS handshake as it may have")
	errOwnProtocol       = errors.New("agent does not speak Fairlead's protocol, which --link=fairlead requires: use Fairlead's agent without --link=upstream, or set --link=auto")
	errStopping          = errors.New("server is stopping")
)

// enter counts a connection that has not authenticated yet. It returns false if there is
// no room for another agent. An agent for which there was room does not wait until
// unauthenticated connections close. Only agents that arrive after those connections do.
func (s *Server) enter() bool {
	n := s.strangers.Add(1)
	if s.seats.Get()+n > int64(s.cfg.MaxAgents) {
		s.strangers.Add(-1)
		return false
	}
	return true
}

// serveLink serves an agent with Fairlead's own protocol.
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
	defer s.unseat(&ids)
	known()
	_ = nc.SetWriteDeadline(time.Now().Add(refuseTime))
	err = link.SendWelcome(nc, link.Welcome{ServerID: s.cfg.ServerID, ServerCount: s.cfg.ServerCount, Window: s.cfg.Link.Window, Links: s.cfg.Links})
	if err != nil {
		return
	}
	_ = nc.SetDeadline(time.Time{})
	s.runLink(nc, pc, hello, ids, come)
}

// readHello returns an agent's hello, or nil when the server does not accept the agent. If
// there is no room, the agent still gets a short time to send its hello, so that the
// server can answer with the reason.
func (s *Server) readHello(nc *tls.Conn, room bool) *link.Hello {
	patience := s.cfg.HandshakeTimeout
	if !room {
		patience = min(patience, refuseTime)
	}
	_ = nc.SetDeadline(time.Now().Add(patience))
	hello, err := link.ReadHello(nc)
	switch {
	case err == nil && s.duplicate(&hello):
		s.noteDuplicate(nc.RemoteAddr().String(), &hello)
		link.SendRefuse(nc, link.ReasonDuplicate)
	case !room:
		s.refuseLink(nc, "limit", errTooManyAgents)
	case err != nil:
		s.m.badInput.With("agent").Inc()
		s.refuse(nc, "handshake", err)
	case len(hello.AgentID) > link.MaxAgentID:
		s.refuseLink(nc, "identifiers", longID(hello.AgentID))
	default:
		return &hello
	}
	return nil
}

func longID(id string) error {
	return fmt.Errorf("agent ID has %d bytes and may have %d: set a shorter --agent-id", len(id), link.MaxAgentID)
}

// refuseLink refuses an agent that has sent its hello in Fairlead's own protocol.
func (s *Server) refuseLink(nc *tls.Conn, reason string, err error) {
	s.refuse(nc, reason, err)
	_ = nc.SetWriteDeadline(time.Now().Add(refuseTime)) // the handshake may have used up the earlier deadline
	link.SendRefuse(nc, reason+": "+err.Error())
}

// runLink runs an agent's link. It calls joined when the link can take dials.
func (s *Server) runLink(nc net.Conn, pc *plainConn, hello *link.Hello, ids Identifiers, joined func()) {
	b := s.newBackend(hello.AgentID, ids, nc)
	b.tenure.token, b.traces = hello.Token, hello.Traces
	b.version = hello.Version
	cfg := s.cfg.Link
	cfg.MaxStreams = s.cfg.MaxPerAgent
	cfg.OnDrain = func() {
		if !b.draining.Swap(true) { // once: an agent that does not read could repeat it
			s.vacate(b)
			b.link.Drained()
		}
	}
	cfg.OnViolation = func(rule string, first bool) { s.badAgent(b, first, errors.New(rule)) }
	cfg.OnUnknown = func(typ byte, first bool) {
		s.m.unknownFrames.Inc()
		if first {
			s.throttled.Add(logthrottle.Event{Level: 1, Peer: b.peer, Message: "Skipping frames of an unknown type: the agent may be newer", Who: b.who(), Why: []any{"type", typ}})
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
		s.badAgent(b, true, err)
	}
	s.leave(b, "fairlead", err)
}

// badAgent counts a protocol violation by an agent. It logs the violation if it is the
// first of its kind.
func (s *Server) badAgent(b *Backend, first bool, err error) {
	if first {
		s.throttled.Add(logthrottle.Event{Level: 1, Peer: b.peer, Message: "The agent breaks the protocol", Who: b.who(), Err: err})
	}
	s.m.badInput.With("agent").Inc()
}

// duplicate reports whether the agent does not want a link to this server: it is already
// connected to it, or it asked for other servers only.
func (s *Server) duplicate(h *link.Hello) bool {
	if h.Only != "" {
		return !slices.Contains(strings.Split(h.Only, ","), s.cfg.ServerID)
	}
	return slices.Contains(strings.Split(h.Have, ","), s.cfg.ServerID)
}

func (s *Server) newBackend(id string, ids Identifiers, nc net.Conn) *Backend {
	b := &Backend{agentID: id, ids: ids, peer: nc.RemoteAddr().String(), most: s.cfg.MaxPerAgent, dials: map[*attempt]time.Time{},
		tenure: tenure{reviewAt: s.nextReview()}}
	if tc, ok := nc.(*tls.Conn); ok {
		b.tenure.certificates = tc.ConnectionState().PeerCertificates
	}
	return b
}

func (s *Server) join(b *Backend, protocol string) {
	b.since = time.Now()
	b.account = s.memory.Open(b.key(), b.holder())
	s.disputed(s.reg.add(b))
	if b.draining.Load() {
		s.vacate(b) // an upstream agent may have announced that it drains before it joined
	}
	s.m.links.With(protocol).Inc()
	s.m.grpcConns.With("Connect").Inc()
	s.noteAgent(2, b, "The agent is connected", nil, "protocol", protocol)
}

// settled is how long a link has to live before the server forgets what it has logged
// about the agent. Until then, the agent may be one that reconnects in a loop.
const settled = time.Minute

// noteAgent logs that an agent's connection begins or ends. The log is throttled per host
// and owner: otherwise a host that connects in a loop would fill the log, whatever agent
// IDs it uses.
func (s *Server) noteAgent(level int, b *Backend, message string, err error, why ...any) {
	s.throttled.Add(logthrottle.Event{Level: level, Peer: b.logPeer(), Message: message, Who: b.who(), Why: why, Err: err})
}

// who names an agent in the log.
func (b *Backend) who() []any { return []any{"agent", b.agentID, "address", b.peer} }

// logPeer returns the host and the owner of an agent, as the key for the log: agents of
// several nodes may share one address, and an agent chooses its ID itself. The key differs
// from the host alone, under which refusals are logged.
func (b *Backend) logPeer() string {
	host, _, err := net.SplitHostPort(b.peer)
	if err != nil {
		host = b.peer
	}
	return fmt.Sprintf("%s, owner %q", host, b.ids.owner)
}

// leave removes an agent's connection. Its pending dials move to other agents. The link
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
	var pe *link.ProtocolError
	if !errors.As(err, &pe) && time.Since(b.since) >= settled {
		s.throttled.Forget(b.logPeer())
	}
	level := 2
	if b.tenure.expired.Load() {
		level = 5
	}
	s.noteAgent(level, b, "The agent is gone", err)
	for _, at := range b.overdue(-1) {
		at.retry()
	}
}

// linkConn lets Shutdown close a link.
type linkConn struct {
	s *Server
	b *Backend
}

func (l *linkConn) goAway() { l.b.link.GoingAway() }

// abort does not wait for the agent: an agent that takes nothing would delay the others.
func (l *linkConn) abort() { l.s.wg.Go(l.b.link.Close) }
