// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
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

// Finder returns the servers, by their addresses. If some cannot be looked for, it returns an error as well, and those of
// them that it found before.
type Finder interface {
	Find(ctx context.Context) (map[string]Asker, error)
}

// Sink is where objects go. *memstore.Store is one. It may hold up who writes.
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
	set(&c.Timeout, requestTimeout)
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
	// finding is set while servers are looked for, and found is the error of the last look.
	finding bool
	found   error
	// late gets to know of answers that came after their round.
	late       chan struct{}
	background sync.WaitGroup

	// What follows belongs to write.

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
		cfg: cfg, seen: map[string]*server{}, late: make(chan struct{}, 1), seed: maphash.MakeSeed(), gone: map[string]time.Time{},
		agents: newTable(cfg.Agents, cfg.AgentsPrefix), servers: newTable(cfg.Servers, cfg.ServersPrefix),
	}
}

// Run collects until ctx ends.
func (c *Collector) Run(ctx context.Context) {
	defer c.background.Wait()
	tick := time.NewTicker(c.cfg.Interval)
	defer tick.Stop()
	for {
		c.Round(ctx)
		for ticked := false; !ticked; {
			select {
			case <-ctx.Done():
				return
			case <-c.late:
				c.write(c.cfg.Now())
			case <-tick.C:
				ticked = true
			}
		}
	}
}

// Round asks all servers once and writes what has changed. The first rounds wait for all answers, and later ones for those
// that come soon: Run writes the others when they come.
func (c *Collector) Round(ctx context.Context) {
	c.poll(ctx)
	if ctx.Err() != nil {
		return
	}
	c.write(c.cfg.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready = c.ready || c.answeredLocked()
}

// answeredLocked reports whether a server has answered, or all of them are known to show nothing. If no server answers, it
// is not known which agents there are: an empty list would be wrong.
func (c *Collector) answeredLocked() bool {
	older := 0
	for _, s := range c.seen {
		switch {
		case s.state != nil:
			return true
		case errors.Is(s.err, state.ErrOlder):
			older++
		}
	}
	return older > 0 && older == len(c.seen)
}

// Ready returns nil once servers were found, all of them were asked, and one has answered.
func (c *Collector) Ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ready {
		return nil
	}
	_, silent := c.latest()
	return noAnswer(c.missingLocked(silent), "agents")
}

// Missing returns the servers of which nothing is known: those that could not be found, and those that have never answered.
func (c *Collector) Missing() []Missing {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, silent := c.latest()
	return c.missingLocked(silent)
}

func (c *Collector) missingLocked(silent []*server) (out []Missing) {
	if c.found != nil {
		out = append(out, Missing{"", c.found})
	}
	for _, s := range silent {
		out = append(out, Missing{s.address, s.err})
	}
	slices.SortFunc(out, byServer)
	return out
}
