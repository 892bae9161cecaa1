// Package agent runs next to the nodes: it keeps links to all servers and
// connects to destinations on their behalf.
package agent

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/ledger"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/metrics"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/pipe"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/refusals"
)

// Config says how an agent behaves.
type Config struct {
	// Address is host:port of the servers, or of what spreads over them.
	Address string
	// TLS returns the configuration for the next connection, so that renewed
	// certificates are used.
	TLS func() (*tls.Config, error)
	// Token returns the bearer token for the next connection; nil for none.
	Token       func() (string, error)
	AgentID     string
	Identifiers string
	// Lookup resolves the servers' name; nil asks the system.
	Lookup func(ctx context.Context, host string) ([]string, error)

	// SyncInterval is the time between checks for missing servers. For an address
	// that fails it grows up to SyncIntervalCap. Defaults 1 s and 10 s.
	SyncInterval, SyncIntervalCap time.Duration
	// SyncForever goes on looking for more servers when all are connected.
	SyncForever bool
	// ServerCount overrides how many servers there are, from the last server's
	// answer; nil believes the server.
	ServerCount func(fromServer int) int
	// KeepaliveTime is the silence after which an upstream server is pinged,
	// at least 30 s. Default 1 h.
	KeepaliveTime time.Duration
	// ConnectTimeout bounds connecting and the handshakes. Default 20 s.
	ConnectTimeout time.Duration

	// DialTimeout bounds a dial to a destination. Default 5 s.
	DialTimeout time.Duration
	// MaxDials bounds pending dials, MaxConns these and open connections
	// together. Defaults 10,000 and 100,000.
	MaxDials, MaxConns int
	// Policy says what may be dialled; the zero value allows everything.
	Policy Policy

	// Links is the number of connections to each server; 0 does as the server
	// says.
	Links int
	// ReferenceOnly never offers our own protocol.
	ReferenceOnly bool
	// PauseSlow handles receivers that lag behind an upstream server as
	// upstream does: it stops reading, for all connections.
	PauseSlow bool
	// ConnLimit is the number of bytes held for one receiver that lags behind
	// an upstream server. Default 16 MiB.
	ConnLimit int
	// PeerBuffer and TotalBuffer bound what destinations that lag hold, of one
	// server's connections and of all. 0 is no bound.
	PeerBuffer, TotalBuffer int64

	Link link.Config
	Pipe pipe.Config
	// Logf gets what happens to links, with the verbosity that fits it.
	Logf func(level int, format string, args ...any)
	// LogAgain is for how long the same failure to connect is not logged again.
	// Default 5 min.
	LogAgain time.Duration
}

func (c *Config) defaults() {
	dur := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	dur(&c.SyncInterval, time.Second)
	dur(&c.SyncIntervalCap, 10*time.Second)
	dur(&c.KeepaliveTime, time.Hour)
	dur(&c.ConnectTimeout, 20*time.Second)
	dur(&c.DialTimeout, 5*time.Second)
	if c.MaxDials == 0 {
		c.MaxDials = 10_000
	}
	if c.MaxConns == 0 {
		c.MaxConns = 100_000
	}
	if c.Link.Window == 0 {
		c.Link.Window = 256 << 10
	}
	if c.Link.Budget == nil {
		c.Link.Budget = link.NewBudget(32 << 20)
	}
	if c.Lookup == nil {
		c.Lookup = net.DefaultResolver.LookupHost
	}
	if c.Logf == nil {
		c.Logf = func(int, string, ...any) {}
	}
}

// Agent holds the links to all servers.
type Agent struct {
	cfg     Config
	m       *Metrics
	dialing metrics.Value
	carried metrics.Value // dials and connections together; a dial that succeeds keeps its place
	book    *ledger.Ledger
	said    *refusals.Log

	mu       sync.Mutex
	clients  []*client
	lost     []string // addresses of links that have ended, or whose server leaves
	ends     map[*pipe.End]struct{}
	count    int // servers, as the last one said
	draining atomic.Bool
	changed  chan struct{}
	wg       sync.WaitGroup
}

// New returns an agent that does nothing until Run.
func New(cfg Config, m *Metrics) *Agent {
	cfg.defaults()
	a := &Agent{cfg: cfg, m: m, ends: map[*pipe.End]struct{}{}, changed: make(chan struct{}, 1)}
	a.said = refusals.New(a.cfg.Logf, a.cfg.LogAgain)
	a.cfg.Pipe.Leaving = a.draining.Load
	a.book = ledger.New(ledger.Config{Peer: cfg.PeerBuffer, Total: cfg.TotalBuffer, OnReset: a.evicted})
	return a
}

// evicted is told that connections were reset for their memory.
func (a *Agent) evicted(server string, connections int, bytes int64) {
	a.m.evictions.With(ledger.Bound(server)).Add(int64(connections))
	a.cfg.Logf(1, "reset %d connections whose destinations do not read, which held %d bytes: %s", connections, bytes,
		ledger.Explain("server", server, a.cfg.PeerBuffer, a.cfg.TotalBuffer))
}

// Run keeps the agent connected until ctx ends, and then ends all connections.
func (a *Agent) Run(ctx context.Context) {
	a.search(a.open).until(ctx)
	a.mu.Lock()
	clients := append([]*client(nil), a.clients...)
	ends := make([]*pipe.End, 0, len(a.ends))
	for e := range a.ends {
		ends = append(ends, e)
	}
	a.mu.Unlock()
	for _, e := range ends {
		e.Abort("agent stops")
	}
	for _, c := range clients {
		a.wg.Go(c.close)
	}
	a.wg.Wait()
}

func (a *Agent) remember(e *pipe.End) {
	a.mu.Lock()
	a.ends[e] = struct{}{}
	a.mu.Unlock()
}

func (a *Agent) forget(e *pipe.End) {
	a.mu.Lock()
	delete(a.ends, e)
	a.mu.Unlock()
}

// Connections is the number of open connections to destinations.
func (a *Agent) Connections() int64 { return a.m.endpoints.Get() }

// lose has the address of a link tried again.
func (a *Agent) lose(c *client) {
	a.mu.Lock()
	a.lost = append(a.lost, c.addr)
	a.mu.Unlock()
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// Ready tells whether at least one server is connected.
func (a *Agent) Ready() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.clients) > 0
}

// Drain asks all servers to dial no more here, and returns when the last
// connection has ended and no dial can follow, or when ctx ends.
func (a *Agent) Drain(ctx context.Context) {
	a.mu.Lock()
	a.draining.Store(true)
	clients := append([]*client(nil), a.clients...)
	a.mu.Unlock()
	for _, c := range clients {
		c.drain()
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !a.drained() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (a *Agent) drained() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := true
	for _, c := range a.clients {
		all = c.drained() && all // all are asked: each is silent for a time of its own
	}
	return all && len(a.ends) == 0 && a.carried.Get() == 0
}
