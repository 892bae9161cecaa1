// Package server accepts kube-apiserver on one side and agents on the other, and
// connects what the first asks for through the second.
package server

import (
	"context"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/ledger"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/metrics"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/pipe"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/refusals"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel"
)

// TokenChecker decides about agents' bearer tokens.
type TokenChecker interface {
	// Check returns an error for a token that is not accepted, and else the
	// node that the token is bound to, if that is known. peer is who sent it,
	// as "ADDRESS:PORT"; ctx ends when that has gone.
	Check(ctx context.Context, peer, token string) (node string, err error)
}

// Config says how a server behaves. A zero field takes its default.
type Config struct {
	ServerID    string
	ServerCount int
	Strategies  []Strategy
	// Tokens checks agents; nil accepts every agent that TLS accepts.
	Tokens TokenChecker
	// DialTimeout bounds a dial, from the request to the agent's answer.
	// Default 35 s, just longer than kube-apiserver waits.
	DialTimeout time.Duration
	// AgentWait is for how long a dial waits for an agent when there was one a
	// short time ago, one is being let in, or the server has just started.
	// Default 0.
	AgentWait time.Duration
	// RetryAfter is for how long an agent may leave a dial unanswered before it
	// is asked for a sign of life. Default 1 s.
	RetryAfter time.Duration
	// FirstStream is for how long after it has connected a gRPC client may open its
	// first stream, and an HTTP CONNECT client may send its request, though the
	// server was asked to stop. Default 500 ms.
	FirstStream time.Duration
	// AgentKeepalive is the silence after which an upstream agent has to answer a
	// ping within KeepaliveTimeout, as upstream's server wants it. Default 1 h.
	// Agents are pinged after a few seconds already, to keep frozen ones out of new
	// dials, and our own are given up within 20 s whatever this says.
	AgentKeepalive time.Duration
	// FrontendKeepalive is the same for clients. Default 1 h.
	FrontendKeepalive time.Duration
	// KeepaliveTimeout is for how long an answer is awaited. Default 20 s.
	KeepaliveTimeout time.Duration
	// HandshakeTimeout bounds TLS handshakes and, each by itself, agents'
	// introductions. Default 20 s.
	HandshakeTimeout time.Duration
	// MaxPending bounds dials without an answer, MaxConns these and tunnelled
	// connections together, MaxAgents agents' connections. Defaults 10,000, 200,000
	// and 20,000.
	MaxPending, MaxConns, MaxAgents int
	// MaxPerAgent bounds what MaxConns counts on each connection of an agent. Dials go
	// to another agent then, if one fits. Default 100,000.
	MaxPerAgent int
	// Links is how many connections each of our own agents should hold.
	// Default 1.
	Links int
	// ReferenceOnly never negotiates our own protocol with agents.
	ReferenceOnly bool
	// PauseSlow and ConnLimit: as in the agent's Config, for upstream agents.
	PauseSlow bool
	ConnLimit int
	// PeerBuffer and TotalBuffer bound what receivers that lag hold, of one
	// agent's connections and of all. 0 is no bound.
	PeerBuffer, TotalBuffer int64
	// Claims says what an agent may claim about itself.
	Claims Claims

	Link     link.Config
	Frontend h2.Config
	Pipe     pipe.Config
	Logf     func(level int, format string, args ...any)
	// LogAgain is for how long the same refusal of the same peer is not logged again.
	// Default 5 min.
	LogAgain time.Duration
}

// firstWindow is what a gRPC client may send ahead on a stream that has not sent much:
// with all of it waiting for an agent, a buffer of the second size holds it.
const firstWindow = 15 << 10

func (c *Config) defaults() {
	dur := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	num := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	dur(&c.DialTimeout, 35*time.Second)
	dur(&c.RetryAfter, time.Second)
	dur(&c.FirstStream, 500*time.Millisecond)
	dur(&c.AgentKeepalive, time.Hour)
	dur(&c.FrontendKeepalive, time.Hour)
	dur(&c.KeepaliveTimeout, 20*time.Second)
	dur(&c.HandshakeTimeout, 20*time.Second)
	dur(&c.Pipe.Stall, pipe.DefaultStall)
	num(&c.MaxPending, 10_000)
	num(&c.MaxConns, 200_000)
	num(&c.MaxAgents, 20_000)
	num(&c.MaxPerAgent, 100_000)
	num(&c.Links, 1)
	num(&c.ServerCount, 1)
	num(&c.Link.Window, 256<<10)
	num(&c.Frontend.StreamWindow, 192<<10)
	num(&c.Frontend.FirstWindow, min(firstWindow, c.Frontend.StreamWindow))
	if c.Link.Budget == nil {
		c.Link.Budget = link.NewBudget(32 << 20)
	}
	if len(c.Strategies) == 0 {
		c.Strategies = []Strategy{StrategyDefault}
	}
	if c.Logf == nil {
		c.Logf = func(int, string, ...any) {}
	}
}

// Server is the server side of the tunnel.
type Server struct {
	cfg     Config
	m       *Metrics
	reg     *registry
	book    *ledger.Ledger
	said    *refusals.Log
	started atomic.Int64 // when this server began, unix nanoseconds
	lost    atomic.Int64 // when the last agent went away, unix nanoseconds
	nextID  atomic.Int64 // connection numbers given to clients
	opening atomic.Int64 // clients that have connected and not dialled yet
	coming  atomic.Int64 // agents that have introduced themselves and are not connected yet
	// carried counts the dials that are pending and the connections together: a dial
	// that succeeds keeps its place.
	carried metrics.Value
	// seats counts the agents that are connected or about to be, strangers the
	// connections on the agents' port that have yet to become one, and shaking those
	// before that in their TLS handshake.
	seats     metrics.Value
	shaking   metrics.Value
	strangers atomic.Int64
	spare     reserve
	turns     *turns // of agents' handshakes

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	conns     map[closer]struct{} // frontends' and agents' connections
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
	s := &Server{cfg: cfg, m: m, listeners: map[net.Listener]struct{}{}, conns: map[closer]struct{}{}, stop: make(chan struct{}),
		turns: newTurns(runtime.GOMAXPROCS(0))}
	s.started.Store(time.Now().UnixNano())
	s.said = refusals.New(cfg.Logf, cfg.LogAgain)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.reg = newRegistry(cfg.Strategies, m)
	s.book = ledger.New(ledger.Config{Peer: cfg.PeerBuffer, Total: cfg.TotalBuffer, OnReset: s.evicted})
	m.Registry.Before(s.countBlocked)
	s.spare.take()
	s.wg.Add(1)
	go s.watch()
	return s
}

// evicted is told that connections were reset for their memory.
func (s *Server) evicted(agent string, connections int, bytes int64) {
	s.m.evictions.With(ledger.Bound(agent)).Add(int64(connections))
	s.cfg.Logf(1, "reset %d connections whose clients do not read, which held %d bytes: %s", connections, bytes,
		ledger.Explain("agent", agent, s.cfg.PeerBuffer, s.cfg.TotalBuffer))
}

// Ready tells whether an agent is connected.
func (s *Server) Ready() (bool, string) {
	if s.reg.ready() {
		return true, ""
	}
	return false, "no connection to any proxy agent"
}

// Connected tells whether an agent of that ID is connected.
func (s *Server) Connected(agentID string) bool {
	return slices.ContainsFunc(s.reg.list(), func(b *Backend) bool { return b.agentID == agentID })
}

// awaitAgent calls p.next once an agent is there or the wait is over; false when
// there is nothing to wait for.
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
		return true // nobody waits
	}
	come, gone := s.reg.changes()
	if p.forgetGone() < maxTries {
		gone = nil // any agent that comes may be asked
	}
	if p.pick() != nil { // one has come since the caller looked
		return s.spawn(func() { p.next(true) })
	}
	return s.spawn(func() {
		t := time.NewTimer(left)
		defer t.Stop()
		select {
		case <-come:
		case <-gone: // makes room among those tried for one that is there already
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
