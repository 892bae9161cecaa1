// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/identifiers"
)

// Strategy is a way to choose an agent for a destination.
type Strategy int

// The strategies of upstream's server.
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

// group is the links under one key: an owner, an agent's ID, or a host that agents claim.
type group struct {
	key   string
	at    int // index in pool.groups
	links []*Backend

	disputed bool // agents claim the host that may not all have it: none gets it
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

// add returns why hosts became disputed by the link, if any did.
func (p *pool) add(b *Backend) (disputes []string) {
	for _, key := range p.keys(b) {
		g := p.byKey[key]
		if g == nil {
			g = &group{key: key, at: len(p.groups)}
			p.byKey[key] = g
			p.groups = append(p.groups, g)
		}
		g.links = append(g.links, b)
		if why := g.settle(); why != "" {
			disputes = append(disputes, why)
		}
	}
	return disputes
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
		g.settle()
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
	rankBarred
	rankTried
)

func rank(b *Backend, tried []*Backend) int {
	for _, t := range tried {
		if t == b {
			return rankTried
		}
	}
	switch {
	case b.tenure.barred.Load():
		return rankBarred
	case b.full():
		return rankFull
	case b.suspect():
		return rankSuspect
	case b.draining.Load() || b.tenure.expelled.Load() != 0:
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

// takesDials reports whether new dials go to one of the links.
func (g *group) takesDials() bool {
	return !g.disputed && slices.ContainsFunc(g.links, (*Backend).takesDials)
}

func (g *group) best(tried []*Backend) (b *Backend) {
	for _, l := range g.links {
		b = better(b, l, tried)
	}
	return b
}

// choose picks a random group, and looks through all of them only if that one is no good.
// Load decides between the links of one group alone: an owner whose agents end each
// connection at once always has the least, and would get more than its share.
func (p *pool) choose(host string, tried []*Backend) *Backend {
	var b *Backend
	if p.strategy == StrategyDestHost {
		if g := p.byKey[host]; g != nil && !g.disputed {
			b = g.best(tried)
		}
	} else if n := len(p.groups); n > 0 {
		i := rand.IntN(n)
		b = p.groups[i].best(tried)
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
		if g := p.byKey[host]; g != nil && !g.disputed {
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

// serves reports whether choose may return b for the host.
func (p *pool) serves(host string, b *Backend) bool {
	keys := p.keys(b)
	if p.strategy == StrategyDestHost {
		return slices.Contains(keys, host) && !p.byKey[host].disputed
	}
	return len(keys) > 0
}

// hostOf is the host of a destination, in the form in which hosts are compared.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return identifiers.Canonical(host)
	}
	return identifiers.Canonical(strings.Trim(address, "[]"))
}
