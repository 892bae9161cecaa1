// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"crypto/x509"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/endpoint"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/membudget"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/promtext"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/trace"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// TokenChecker authenticates agents by their bearer tokens.
type TokenChecker interface {
	// Check returns an error for a token that is not accepted. Otherwise it returns
	// the node that the token is bound to, if that is known. peer is the sender, as
	// "ADDRESS:PORT". ctx is done when the sender has disconnected.
	Check(ctx context.Context, peer, token string) (node string, err error)
}

// PodTokenChecker is a TokenChecker that also knows the Pods of agents.
type PodTokenChecker interface {
	TokenChecker
	// CheckPod does what Check does. It also returns the name of the Pod that the token is bound to, if that is known.
	CheckPod(ctx context.Context, peer, token string) (node, pod string, err error)
}

// Config says how a server behaves. A zero field takes its default.
type Config struct {
	ServerID    string
	ServerCount int
	Strategies  []Strategy
	// Tokens checks agents; nil accepts every agent that TLS accepts.
	Tokens TokenChecker
	// VerifyAgent says whether a handshake would still accept the certificates of a
	// connected agent, its own one first. nil accepts them as long as the agent is connected.
	VerifyAgent func(chain []*x509.Certificate) error
	// ReviewInterval is how often the server reviews connected agents again: their
	// certificates with VerifyAgent, their tokens if Tokens is a TokenReviewer. 0 means never.
	ReviewInterval time.Duration
	// ExpelGrace is how long a connected agent whose token or certificate is then refused
	// still gets dials that no other agent can carry. Default 10 s.
	ExpelGrace time.Duration
	// LastResort is how long an upstream agent whose token or certificate has only expired
	// gets dials that no other agent can carry, while it carries connections. Default 1 h.
	LastResort time.Duration
	// DialTimeout bounds a dial, from the request to the agent's answer.
	// Default 35 s, just longer than kube-apiserver waits.
	DialTimeout time.Duration
	// AgentWait is how long a dial waits for an agent if one was connected a short
	// time ago, if one is being admitted, or if the server has just started. Default
	// 0.
	AgentWait time.Duration
	// RetryAfter is how long an agent may leave a dial unanswered before the server
	// probes whether the agent is alive. Default 1 s.
	RetryAfter time.Duration
	// FirstStream is how long after connecting a gRPC frontend may still open its first
	// stream, and an HTTP CONNECT frontend may still send its request, although the
	// server is stopping. Default 500 ms.
	FirstStream time.Duration
	// AgentKeepalive is the time without traffic after which the server pings an
	// upstream agent, which must answer within KeepaliveTimeout, as with upstream's
	// server. Default 1 h. The server also pings agents after a few seconds of
	// silence, to keep frozen ones out of new dials. It gives up Fairlead's own agents
	// within 20 s, regardless of this setting.
	AgentKeepalive time.Duration
	// FrontendKeepalive is the same for frontends. Default 1 h.
	FrontendKeepalive time.Duration
	// KeepaliveTimeout is how long the server waits for the answer to a ping. Default
	// 20 s.
	KeepaliveTimeout time.Duration
	// HandshakeTimeout bounds the TLS handshake and, separately, an agent's hello.
	// Default 20 s.
	HandshakeTimeout time.Duration
	// MaxPending limits dials without an answer. MaxConns limits these and the
	// tunneled connections together. MaxAgents limits the connections of agents.
	// Defaults 10,000, 200,000 and 20,000.
	MaxPending, MaxConns, MaxAgents int
	// MaxPerAgent is the limit for the dials and tunneled connections, counted as for
	// MaxConns, on each connection of an agent. Beyond it, dials go to another agent
	// that fits. Default 100,000.
	MaxPerAgent int
	// MaxPerOwner limits the connections of all agents of one node, or of one common
	// name. Default 4 for each of Links, at least 64.
	MaxPerOwner int
	// Links is how many connections each Fairlead agent should hold. Default 1.
	Links int
	// Protocol is what the server speaks with agents. The zero value is ProtocolAny.
	Protocol settings.Protocol
	// PauseSlow and ConnBuffer: as in the agent's Config, for upstream agents.
	PauseSlow  bool
	ConnBuffer int
	// PeerBuffer and TotalBuffer limit the memory for data queued to slow receivers,
	// per agent and in total. 0 means unlimited.
	PeerBuffer, TotalBuffer int64
	// Claims says what an agent may claim about itself.
	Claims Claims

	// Tracer records dials; nil records none.
	Tracer *trace.Tracer

	Link     link.Config
	Frontend h2.Config
	Pipe     endpoint.Config
	Logger   logr.Logger
	// LogAgain is how long the server waits before it logs the same refusal of the
	// same peer again. Default 5 min.
	LogAgain time.Duration
}

// firstWindow is the flow control window of a gRPC frontend's stream that has not sent
// much. If all of it waits for an agent, one buffer of the second size holds it.
const firstWindow = 15 << 10

// DefaultConfig returns the values that zero fields of a Config take.
func DefaultConfig() Config {
	return Config{
		DialTimeout: 35 * time.Second, RetryAfter: time.Second, ExpelGrace: expelGraceDefault, LastResort: lastResortDefault,
		FirstStream: 500 * time.Millisecond, AgentKeepalive: time.Hour, FrontendKeepalive: time.Hour,
		KeepaliveTimeout: 20 * time.Second, HandshakeTimeout: 20 * time.Second,
		MaxPending: 10_000, MaxConns: 200_000, MaxAgents: 20_000, MaxPerAgent: 100_000, Links: 1, ServerCount: 1,
		Strategies: []Strategy{StrategyDefault},
	}
}

func (c *Config) defaults() {
	d := DefaultConfig()
	for _, f := range []struct {
		value *time.Duration
		zero  time.Duration
	}{
		{&c.DialTimeout, d.DialTimeout}, {&c.RetryAfter, d.RetryAfter}, {&c.ExpelGrace, d.ExpelGrace}, {&c.LastResort, d.LastResort},
		{&c.FirstStream, d.FirstStream}, {&c.AgentKeepalive, d.AgentKeepalive}, {&c.FrontendKeepalive, d.FrontendKeepalive},
		{&c.KeepaliveTimeout, d.KeepaliveTimeout}, {&c.HandshakeTimeout, d.HandshakeTimeout},
		{&c.Claims.Recheck, recheckDefault}, {&c.Pipe.Stall, endpoint.DefaultStall},
	} {
		if *f.value <= 0 {
			*f.value = f.zero
		}
	}
	c.MaxPending, c.MaxConns, c.MaxAgents = cmp.Or(c.MaxPending, d.MaxPending), cmp.Or(c.MaxConns, d.MaxConns), cmp.Or(c.MaxAgents, d.MaxAgents)
	c.MaxPerAgent, c.Links, c.ServerCount = cmp.Or(c.MaxPerAgent, d.MaxPerAgent), cmp.Or(c.Links, d.Links), cmp.Or(c.ServerCount, d.ServerCount)
	c.MaxPerOwner = cmp.Or(c.MaxPerOwner, max(64, 4*c.Links))
	c.Link.Window = cmp.Or(c.Link.Window, settings.DefaultLinkWindow)
	c.Frontend.StreamWindow = cmp.Or(c.Frontend.StreamWindow, 192<<10)
	c.Frontend.FirstWindow = cmp.Or(c.Frontend.FirstWindow, min(firstWindow, c.Frontend.StreamWindow))
	if c.Link.Budget == nil {
		c.Link.Budget = link.NewBudget(settings.DefaultLinkBudget)
	}
	if len(c.Strategies) == 0 {
		c.Strategies = d.Strategies
	}
}

// Server is the server side of the tunnel.
type Server struct {
	cfg       Config
	m         *Metrics
	reg       *registry
	memory    *membudget.Budget
	throttled *logthrottle.Log
	started   atomic.Int64 // when this server began, unix nanoseconds
	lost      atomic.Int64 // when the last agent went away, unix nanoseconds
	nextID    atomic.Int64 // last connection ID given to a frontend
	serial    atomic.Int64 // the last dial's serial number
	opening   atomic.Int64 // frontends that are connected and have not dialed yet
	coming    atomic.Int64 // agents that have sent their hello and are not connected yet
	// carried counts pending dials and connections together: a dial that succeeds
	// keeps its place.
	carried promtext.Value
	// seats counts the agents that are connected or about to be. strangers counts
	// connections on the agents' port that have not authenticated yet. shaking counts
	// connections that are still in their TLS handshake.
	seats     promtext.Value
	shaking   promtext.Value
	strangers atomic.Int64
	spare     reserve
	local     *local // nil without local destinations; set before there are listeners
	// Each limits concurrent handshakes. Frontends have turns of their own: an agent never waits behind them.
	turns, frontendTurns *turns

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	conns     map[closer]struct{}   // frontends' and agents' connections
	owners    map[string]ownerLinks // agents' connections that count in seats, by owner
	draining  bool
	stopped   bool
	wg        sync.WaitGroup
	stop      chan struct{}
	ctx       context.Context // of handshakes and reviews; it ends with stop
	cancel    context.CancelFunc
}

// New returns a server without listeners.
func New(cfg Config, m *Metrics) *Server {
	cfg.defaults()
	s := &Server{cfg: cfg, m: m, listeners: map[net.Listener]struct{}{}, conns: map[closer]struct{}{}, owners: map[string]ownerLinks{}, stop: make(chan struct{}),
		turns: newTurns(runtime.GOMAXPROCS(0)), frontendTurns: newTurns(runtime.GOMAXPROCS(0))}
	s.started.Store(time.Now().UnixNano())
	s.throttled = logthrottle.New(cfg.Logger, cfg.LogAgain)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.reg = newRegistry(cfg.Strategies, m)
	s.memory = membudget.New(membudget.Config{Peer: cfg.PeerBuffer, Total: cfg.TotalBuffer, OnReset: s.evicted})
	m.Registry.Before(s.countBlocked)
	m.Registry.Before(s.reg.gauges)
	s.spare.take()
	s.wg.Add(1)
	if r, ok := cfg.Tokens.(TokenReviewer); cfg.ReviewInterval > 0 && (ok || cfg.VerifyAgent != nil) {
		s.wg.Add(1)
		go s.reviewAgents(r)
	}
	go s.watch()
	if cfg.Claims.By == "node" && cfg.Claims.NodesWith != nil {
		s.wg.Add(1)
		go s.recheckClaims()
	}
	return s
}

// evicted counts and logs connections that were reset because of the memory limit.
func (s *Server) evicted(agent string, connections int, bytes int64) {
	s.m.evictions.With(membudget.Bound(agent)).Add(int64(connections))
	s.throttled.Add(logthrottle.Event{Level: 1, Peer: "memory", Message: "Reset connections whose clients do not read", Why: []any{"connections", connections, "bytes", bytes,
		"reason", membudget.Explain("agent", agent, s.cfg.PeerBuffer, s.cfg.TotalBuffer)}})
}

// Ready reports whether a connected agent takes new dials.
func (s *Server) Ready() (bool, string) {
	if s.reg.ready() {
		return true, ""
	}
	return false, "no connection to any proxy agent"
}

// Connected reports whether an agent with that ID is connected.
func (s *Server) Connected(agentID string) bool {
	return slices.ContainsFunc(s.reg.list(), func(b *Backend) bool { return b.agentID == agentID })
}

// awaitAgent calls p.next once an agent is available or the wait is over. It returns
// false when there is no reason to wait.
func (s *Server) awaitAgent(p *Pending) bool {
	const recent = 30 * time.Second
	wait := s.cfg.AgentWait
	now := time.Now()
	started, lost := time.Unix(0, s.started.Load()), time.Unix(0, s.lost.Load())
	left := wait - now.Sub(p.start)
	hope := p.asked() || s.coming.Load() > 0 || now.Sub(started) < recent || now.Sub(lost) < recent
	if left <= 0 || !hope {
		return false
	}
	over := p.overChan()
	if over == nil {
		return true // the dial is done, and its frontend no longer waits
	}
	come, gone := s.reg.changes()
	if p.forgetGone() < maxTries {
		gone = nil // any agent that comes may be asked
	}
	if p.pick() != nil { // an agent has connected since the caller looked
		return s.spawn(func() { p.next(true) })
	}
	return s.spawn(func() {
		t := time.NewTimer(left)
		defer t.Stop()
		select {
		case <-come:
		case <-gone: // leaves room in the list of tried agents for one that is already connected
		case <-t.C:
		case <-over:
			return
		case <-s.stop:
			p.finish(nil, tunnel.Errorf(tunnel.CodeNoAgent, "server is stopping, and has no agent"), "no_agent")
			return
		}
		p.forgetGone()
		p.next(true)
	})
}
