// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/endpoint"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/membudget"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/promtext"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/trace"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// Config says how an agent behaves.
type Config struct {
	// Address is host:port of the servers, or of a load balancer in front of them.
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

	// Proxy returns the URL, http or https, of the HTTP proxy on the way to the servers'
	// Address, or nil if there is none. Dials to destinations never use it. nil for none.
	Proxy func(address string) (*url.URL, error)

	// SyncInterval is the time between checks for missing servers. For an address
	// that fails it grows up to SyncIntervalCap. Defaults 1 s and 10 s.
	SyncInterval, SyncIntervalCap time.Duration
	// SyncForever makes the agent look for more servers even when all are connected.
	SyncForever bool
	// ServerCount overrides the largest number of servers that connected servers
	// advertise. nil uses the advertised number.
	ServerCount func(fromServer int) int
	// KeepaliveTime is the time without traffic after which the agent pings an upstream
	// server, at least 30 s. Default 1 h.
	KeepaliveTime time.Duration
	// ConnectTimeout bounds connecting and the handshakes. Default 20 s.
	ConnectTimeout time.Duration

	// DialTimeout bounds a dial to a destination, with the lookup of its name. Default 5 s.
	DialTimeout time.Duration
	// MaxDials limits pending dials. MaxConns limits these and open connections
	// together. Defaults 10,000 and 100,000.
	MaxDials, MaxConns int
	// Policy says what may be dialed; the zero value allows everything.
	Policy destinations.Policy

	// Links is the number of connections to each server. 0 uses the number that the
	// server advertises.
	Links int
	// Protocol is what the agent speaks with servers. The zero value is ProtocolAny.
	Protocol settings.Protocol
	// PauseSlow handles slow receivers of an upstream server's connections as upstream
	// does: the agent stops reading, for all connections.
	PauseSlow bool
	// ConnBuffer is the number of bytes queued for one slow receiver of an upstream
	// server's connections. Default 16 MiB.
	ConnBuffer int
	// PeerBuffer and TotalBuffer limit the memory for data queued to slow destinations,
	// per server and in total. 0 means unlimited.
	PeerBuffer, TotalBuffer int64

	Link link.Config
	Pipe endpoint.Config
	// Tracer records dials; nil records none.
	Tracer *trace.Tracer
	// Logger logs events of links. The zero value logs nothing.
	Logger logr.Logger
	// LogAgain is how long the agent waits before it logs the same failure to connect
	// again. Default 5 min.
	LogAgain time.Duration
	// MissingAfter is how long servers have to be missing before the agent warns about
	// it. Default 30 s.
	MissingAfter time.Duration

	resolver *net.Resolver // resolves destinations' names
}

// DefaultConfig returns the values that zero fields of a Config take.
func DefaultConfig() Config {
	return Config{
		SyncInterval: time.Second, SyncIntervalCap: 10 * time.Second, KeepaliveTime: time.Hour, ConnectTimeout: 20 * time.Second,
		DialTimeout: 5 * time.Second, MissingAfter: 30 * time.Second, MaxDials: 10_000, MaxConns: 100_000,
	}
}

func (c *Config) defaults() {
	d := DefaultConfig()
	for _, f := range []struct {
		value *time.Duration
		zero  time.Duration
	}{
		{&c.SyncInterval, d.SyncInterval}, {&c.SyncIntervalCap, d.SyncIntervalCap}, {&c.KeepaliveTime, d.KeepaliveTime},
		{&c.ConnectTimeout, d.ConnectTimeout}, {&c.DialTimeout, d.DialTimeout}, {&c.MissingAfter, d.MissingAfter},
	} {
		if *f.value <= 0 {
			*f.value = f.zero
		}
	}
	c.MaxDials, c.MaxConns = cmp.Or(c.MaxDials, d.MaxDials), cmp.Or(c.MaxConns, d.MaxConns)
	if c.Link.Window == 0 {
		c.Link.Window = settings.DefaultLinkWindow
	}
	if c.Link.Budget == nil {
		c.Link.Budget = link.NewBudget(settings.DefaultLinkBudget)
	}
	c.resolver = newResolver(min(c.DialTimeout, lookupTimeout))
	if c.Lookup == nil {
		c.Lookup = c.resolver.LookupHost
	}
}

// Agent holds the links to all servers.
type Agent struct {
	cfg       Config
	m         *Metrics
	dialing   promtext.Value
	carried   promtext.Value // dials and connections together; a dial that succeeds keeps its place
	memory    *membudget.Budget
	throttled *logthrottle.Log

	mu       sync.Mutex
	clients  []*client
	lost     []string // addresses of links that have ended, or whose server is draining
	ends     map[*endpoint.End]struct{}
	count    int // number of servers; see advertised
	draining atomic.Bool
	changed  chan struct{}
	wg       sync.WaitGroup
}

// New returns an agent that connects to no server until Run is called.
func New(cfg Config, m *Metrics) *Agent {
	cfg.defaults()
	a := &Agent{cfg: cfg, m: m, ends: map[*endpoint.End]struct{}{}, changed: make(chan struct{}, 1)}
	a.throttled = logthrottle.New(a.cfg.Logger, a.cfg.LogAgain)
	a.cfg.Pipe.Leaving = a.draining.Load
	a.memory = membudget.New(membudget.Config{Peer: cfg.PeerBuffer, Total: cfg.TotalBuffer, OnReset: a.evicted})
	return a
}

// evicted counts and logs connections that were reset because of the memory limit.
func (a *Agent) evicted(server string, connections int, bytes int64) {
	a.m.evictions.With(membudget.Bound(server)).Add(int64(connections))
	a.throttled.Add(logthrottle.Event{Level: 1, Peer: "memory", Message: "Reset connections whose destinations do not read", Why: []any{"connections", connections, "bytes", bytes,
		"reason", membudget.Explain("server", server, a.cfg.PeerBuffer, a.cfg.TotalBuffer)}})
}

// Run keeps the agent connected until ctx is done, and then closes all connections.
func (a *Agent) Run(ctx context.Context) {
	a.search(a.open).until(ctx)
	a.mu.Lock()
	clients := append([]*client(nil), a.clients...)
	ends := make([]*endpoint.End, 0, len(a.ends))
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

func (a *Agent) remember(e *endpoint.End) {
	a.mu.Lock()
	a.ends[e] = struct{}{}
	a.mu.Unlock()
}

func (a *Agent) forget(e *endpoint.End) {
	a.mu.Lock()
	delete(a.ends, e)
	a.mu.Unlock()
}

// Connections returns the number of open connections to destinations.
func (a *Agent) Connections() int64 { return a.m.endpoints.Get() }

// lose schedules a new connection to the address of a lost link.
func (a *Agent) lose(c *client) {
	a.mu.Lock()
	a.lost = append(a.lost, c.addr)
	a.mu.Unlock()
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// Ready reports whether at least one server is connected.
func (a *Agent) Ready() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.clients) > 0
}

// Drain asks all servers to send no more dials. It returns when the last connection has
// ended and no dial can follow, or when ctx is done.
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
		all = c.drained() && all // every client is checked: each has its own quiet period
	}
	return all && len(a.ends) == 0 && a.carried.Get() == 0
}
