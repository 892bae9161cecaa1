// SPDX-License-Identifier: Apache-2.0

package server

import (
	"slices"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

// A dial may name the agent that it must go through. Then only the links of that agent are chosen from, the strategies do
// not count, and the dial waits for no agent: the client that has chosen it can choose another one.

// is reports whether a link is one of the agent's.
func (b *Backend) is(a state.Agent) bool { return b.agentID == a.ID && b.ids.owner == a.Owner }

// best returns the best link of an agent that was not tried, whether it may be used or not; nil if there is none.
func (r *registry) best(a state.Agent, tried []*Backend) (b *Backend) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for l := range r.all {
		if l.is(a) && !slices.Contains(tried, l) {
			b = better(b, l, tried)
		}
	}
	return b
}

// through returns a link of an agent that was not tried, or nil.
func (r *registry) through(a state.Agent, tried []*Backend) *Backend {
	if b := r.best(a, tried); b != nil && rank(b, tried) < rankFull {
		return b
	}
	return nil
}

// full returns a link that was not tried and would serve the dial if it were not full, or nil.
func (p *Pending) full(tried []*Backend) *Backend {
	if p.agent == nil {
		return p.s.reg.full(p.address, tried)
	}
	if b := p.s.reg.best(*p.agent, tried); b != nil && rank(b, tried) == rankFull {
		return b
	}
	return nil
}

// hasOther reports whether a link that answers fits as well as b.
func (p *Pending) hasOther(b *Backend, tried []*Backend) bool {
	if p.agent == nil {
		return p.s.reg.hasOther(p.address, b, tried)
	}
	o := p.s.reg.through(*p.agent, append(slices.Clip(tried), b))
	return o != nil && !o.suspect()
}
