// SPDX-License-Identifier: Apache-2.0

package server

import (
	"slices"
	"sync"
)

// registry holds the connected agents.
type registry struct {
	mu    sync.RWMutex
	pools []*pool
	all   map[*Backend]struct{}
	some  chan struct{} // closed and replaced when an agent connects
	less  chan struct{} // closed and replaced when an agent disconnects
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

// add adds a link. It returns the hosts that became disputed by the link, with the
// reasons, if any did.
func (r *registry) add(b *Backend) (disputes []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[b] = struct{}{}
	for _, p := range r.pools {
		disputes = append(disputes, p.add(b)...)
	}
	close(r.some)
	r.some = make(chan struct{})
	return disputes
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
}

// has reports whether the link is connected.
func (r *registry) has(b *Backend) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	_, ok := r.all[b]
	return ok
}

// gauges sets the gauges of links that take dials. They are counted when metrics are
// read, because a link can stop taking dials at any time.
func (r *registry) gauges() {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, p := range r.pools {
		n := 0
		for _, g := range p.groups {
			n += count(g.takesDials())
		}
		r.m.backends.With(p.strategy.String()).Set(int64(n))
		r.m.backendsOld.Set(int64(n))
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

// full returns a link that was not tried and would serve the address if it were not
// full, or nil.
func (r *registry) full(address string, tried []*Backend) *Backend {
	host := hostOf(address)
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, p := range r.pools {
		if b := p.full(host, tried); b != nil {
			return b
		}
	}
	return nil
}

// hasOther reports whether an agent that answers serves the address by the same
// strategy as b, or by an earlier one.
func (r *registry) hasOther(address string, b *Backend, tried []*Backend) bool {
	host := hostOf(address)
	tried = append(slices.Clip(tried), b)
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, p := range r.pools {
		if o := p.choose(host, tried); o != nil && !o.suspect() {
			return true
		}
		if p.serves(host, b) {
			return false
		}
	}
	return false
}

// ready reports whether the first strategy has an agent that takes dials.
func (r *registry) ready() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.ContainsFunc(r.pools[0].groups, (*group).takesDials)
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

// changes returns channels that are closed when the next agent connects, and when the
// next one disconnects.
func (r *registry) changes() (come, gone <-chan struct{}) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.some, r.less
}
