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

// streams is the number of streams on all agents' links.
func (r *registry) streams() (n int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for b := range r.all {
		n += b.streams()
	}
	return n
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

// hasOther tells whether an agent that answers serves the address by the same strategy
// as b, or by one that goes before it.
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
