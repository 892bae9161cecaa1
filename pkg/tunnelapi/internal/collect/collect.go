// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

// Asker asks one server. *state.Client is one.
type Asker interface {
	State(ctx context.Context) (*state.State, error)
	Connections(ctx context.Context, after int64, limit int) (*state.Connections, error)
}

// Finder returns the servers, by their addresses.
type Finder interface {
	Find(ctx context.Context) (map[string]Asker, error)
}

// Sink is where objects go. *memstore.Store is one.
type Sink interface {
	Put(key string, obj runtime.Object) error
	Remove(key string) error
}

// Config configures a Collector. A zero duration takes its default.
type Config struct {
	Finder          Finder
	Agents, Servers Sink
	// AgentsPrefix and ServersPrefix are what the keys of the sinks begin with.
	AgentsPrefix, ServersPrefix string
	// Interval is the time between two rounds. Default 1 s.
	Interval time.Duration
	// Timeout bounds a request. Default 3 s.
	Timeout time.Duration
	// CountsInterval is how often an object is written at most if only its counts have changed. Default 10 s.
	CountsInterval time.Duration
	// StaleAfter is how long an answer counts as true if no newer one comes. Default 10 s.
	StaleAfter time.Duration
	// KeepGone is how long an agent that has disconnected, and a server that does not answer, stay. Default 10 min.
	KeepGone time.Duration
	// MaxGone is how many agents that have disconnected stay at most. Default 1000.
	MaxGone int
	// Now is the clock; nil is the real one.
	Now func() time.Time
	// Logger logs. The zero value logs nothing.
	Logger logr.Logger
}

func (c *Config) defaults() {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&c.Interval, time.Second)
	set(&c.Timeout, 3*time.Second)
	set(&c.CountsInterval, 10*time.Second)
	set(&c.StaleAfter, 10*time.Second)
	set(&c.KeepGone, 10*time.Minute)
	if c.MaxGone == 0 {
		c.MaxGone = 1000
	}
	if c.Now == nil {
		c.Now = time.Now
	}
}

// Collector keeps the objects up to date.
type Collector struct {
	cfg Config

	mu    sync.Mutex
	seen  map[string]*server // by address
	ready bool
	// found is the error of the last look for servers.
	found error

	seed    maphash.Seed
	agents  table
	servers table
	// gone is when agents disconnected, by the names of their objects.
	gone map[string]time.Time
}

// New returns a collector. It asks nothing before Run.
func New(cfg Config) *Collector {
	cfg.defaults()
	return &Collector{
		cfg: cfg, seen: map[string]*server{}, seed: maphash.MakeSeed(), gone: map[string]time.Time{},
		agents: newTable(cfg.Agents, cfg.AgentsPrefix), servers: newTable(cfg.Servers, cfg.ServersPrefix),
	}
}

// Run collects until ctx ends.
func (c *Collector) Run(ctx context.Context) {
	tick := time.NewTicker(c.cfg.Interval)
	defer tick.Stop()
	for {
		c.Round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Round asks all servers once and writes what has changed.
func (c *Collector) Round(ctx context.Context) {
	c.poll(ctx)
	if ctx.Err() != nil {
		return
	}
	c.write(c.cfg.Now())
	c.mu.Lock()
	c.ready = true
	c.mu.Unlock()
}

// Ready returns nil once all servers were asked.
func (c *Collector) Ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ready {
		return errNotReady
	}
	return nil
}
