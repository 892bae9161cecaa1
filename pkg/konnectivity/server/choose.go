package server

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
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
	return []string{b.key()}
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

// Ranks of a link: draining ones and then silent ones are the last resort, and those
// from rankFull on are none.
const (
	rankGood = iota
	rankDraining
	rankSuspect
	rankFull
	rankTried
)

func rank(b *Backend, tried []*Backend) int {
	for _, t := range tried {
		if t == b {
			return rankTried
		}
	}
	switch {
	case b.full():
		return rankFull
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
	if b != nil && rank(b, tried) >= rankFull {
		return nil
	}
	return b
}

// full returns a link that was not tried and that choose could return if it were not
// full, or nil.
func (p *pool) full(host string, tried []*Backend) *Backend {
	groups := p.groups
	if p.strategy == StrategyDestHost {
		groups = nil
		if g := p.byKey[host]; g != nil {
			groups = []*group{g}
		}
	}
	for _, g := range groups {
		for _, b := range g.links {
			if rank(b, tried) == rankFull {
				return b
			}
		}
	}
	return nil
}

// serves tells whether choose may return b for the host.
func (p *pool) serves(host string, b *Backend) bool {
	keys := p.keys(b)
	if p.strategy == StrategyDestHost {
		return slices.Contains(keys, host)
	}
	return len(keys) > 0
}

// hostOf strips the port from a destination.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}
