package server

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
)

// Strategy is a way to choose an agent for a destination.
type Strategy int

// The strategies of the reference server.
const (
	StrategyDefault      Strategy = iota // any agent
	StrategyDestHost                     // an agent that claims the destination's host
	StrategyDefaultRoute                 // an agent that claims the default route
)

var strategyNames = [...]string{"default", "destHost", "defaultRoute"}

func (s Strategy) String() string { return strategyNames[s] }

// ParseStrategies reads the comma-separated list of --proxy-strategies.
func ParseStrategies(list string) ([]Strategy, error) {
	var out []Strategy
next:
	for _, name := range strings.Split(list, ",") {
		if name == "" {
			continue
		}
		for s, n := range strategyNames {
			if n == name {
				out = append(out, Strategy(s))
				continue next
			}
		}
		return nil, fmt.Errorf("unknown proxy strategy: %s", name)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("proxy strategies cannot be empty")
	}
	return out, nil
}

// group is the links under one key: an agent's ID, or a host it claims.
type group struct {
	key   string
	at    int // index in pool.groups
	links []*Backend
}

// pool is what one strategy chooses from.
type pool struct {
	strategy Strategy
	byKey    map[string]*group
	groups   []*group
}

func (p *pool) keys(b *Backend) []string {
	switch p.strategy {
	case StrategyDestHost:
		return b.ids.hosts()
	case StrategyDefaultRoute:
		if !b.ids.DefaultRoute {
			return nil
		}
	}
	return []string{b.agentID}
}

func (p *pool) add(b *Backend) {
	for _, key := range p.keys(b) {
		g := p.byKey[key]
		if g == nil {
			g = &group{key: key, at: len(p.groups)}
			p.byKey[key] = g
			p.groups = append(p.groups, g)
		}
		g.links = append(g.links, b)
	}
}

func (p *pool) remove(b *Backend) {
	for _, key := range p.keys(b) {
		g := p.byKey[key]
		if g == nil {
			continue
		}
		for i, o := range g.links {
			if o == b {
				g.links = append(g.links[:i:i], g.links[i+1:]...)
				break
			}
		}
		if len(g.links) == 0 {
			last := p.groups[len(p.groups)-1]
			p.groups[g.at] = last
			last.at = g.at
			p.groups = p.groups[:len(p.groups)-1]
			delete(p.byKey, key)
		}
	}
}

// Ranks of a link: draining ones and then silent ones are the last resort.
const (
	rankGood = iota
	rankDraining
	rankSuspect
	rankTried
)

func rank(b *Backend, tried []*Backend) int {
	for _, t := range tried {
		if t == b {
			return rankTried
		}
	}
	switch {
	case b.suspect():
		return rankSuspect
	case b.draining.Load():
		return rankDraining
	}
	return rankGood
}

// better compares two candidates by rank and load; either may be nil.
func better(a, b *Backend, tried []*Backend) *Backend {
	switch {
	case a == nil:
		return b
	case b == nil || a == b:
		return a
	}
	ra, rb := rank(a, tried), rank(b, tried)
	if ra < rb || ra == rb && a.load() <= b.load() {
		return a
	}
	return b
}

func (g *group) best(tried []*Backend) (b *Backend) {
	for _, l := range g.links {
		b = better(b, l, tried)
	}
	return b
}

// choose picks the better of two random agents, and looks through all of them
// only if both are no good.
func (p *pool) choose(host string, tried []*Backend) *Backend {
	var b *Backend
	if p.strategy == StrategyDestHost {
		if g := p.byKey[host]; g != nil {
			b = g.best(tried)
		}
	} else if n := len(p.groups); n > 0 {
		i := rand.IntN(n)
		b = p.groups[i].best(tried)
		if n > 1 {
			j := (i + 1 + rand.IntN(n-1)) % n
			b = better(b, p.groups[j].best(tried), tried)
		}
		for k := 0; k < n && rank(b, tried) != rankGood; k++ {
			b = better(b, p.groups[(i+k)%n].best(tried), tried)
		}
	}
	if b != nil && rank(b, tried) == rankTried {
		return nil
	}
	return b
}

// registry holds the connected agents.
type registry struct {
	mu    sync.RWMutex
	pools []*pool
	all   map[*Backend]struct{}
	some  chan struct{} // closed and replaced when an agent comes
	less  chan struct{} // closed and replaced when one goes
	m     *Metrics
}

func newRegistry(strategies []Strategy, m *Metrics) *registry {
	r := &registry{all: map[*Backend]struct{}{}, some: make(chan struct{}), less: make(chan struct{}), m: m}
	for _, s := range strategies {
		r.pools = append(r.pools, &pool{strategy: s, byKey: map[string]*group{}})
	}
	r.gauges()
	return r
}

func (r *registry) add(b *Backend) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[b] = struct{}{}
	for _, p := range r.pools {
		p.add(b)
	}
	close(r.some)
	r.some = make(chan struct{})
	r.gauges()
}

func (r *registry) remove(b *Backend) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, b)
	for _, p := range r.pools {
		p.remove(b)
	}
	close(r.less)
	r.less = make(chan struct{})
	r.gauges()
}

func (r *registry) gauges() {
	for _, p := range r.pools {
		r.m.backends.With(p.strategy.String()).Set(int64(len(p.groups)))
		r.m.backendsOld.Set(int64(len(p.groups)))
	}
}

// choose returns a link for an address, in the order of the strategies, or nil.
func (r *registry) choose(address string, tried []*Backend) *Backend {
	host := hostOf(address)
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, p := range r.pools {
		if b := p.choose(host, tried); b != nil {
			return b
		}
	}
	return nil
}

// ready tells whether the first strategy has an agent.
func (r *registry) ready() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.pools[0].groups) > 0
}

func (r *registry) list() []*Backend {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]*Backend, 0, len(r.all))
	for b := range r.all {
		out = append(out, b)
	}
	return out
}

// count is the number of connected agents.
func (r *registry) count() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.all)
}

// present returns those of the links that are connected.
func (r *registry) present(bs []*Backend) (kept []*Backend) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, b := range bs {
		if _, ok := r.all[b]; ok {
			kept = append(kept, b)
		}
	}
	return kept
}

// changes returns channels that are closed when the next agent comes, and when
// the next one goes.
func (r *registry) changes() (come, gone <-chan struct{}) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.some, r.less
}

// hostOf strips the port from a destination.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}
