// SPDX-License-Identifier: Apache-2.0

package link

import (
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/membudget"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
)

// SetAccount says on whose account goes what receivers hold. It is called before Run.
func (l *Link) SetAccount(a *membudget.Account) {
	l.mu.Lock()
	l.account = a
	l.mu.Unlock()
}

// passedOnLocked notes that the receiver has passed on n bytes, or all it has if
// that is less, and returns how many these were that the link counted.
func (st *Stream) passedOnLocked(n int) int {
	l := st.l
	if l.err != nil {
		return 0 // nothing is held for a link that has ended
	}
	n = min(n, st.unconsumed)
	st.unconsumed -= n
	l.held -= n
	l.account.Add(-n)
	if st.state == stateClosed && st.unconsumed == 0 {
		delete(l.flushing, st)
	}
	return n
}

// Holdings implements membudget.Member.
func (l *Link) Holdings() (all []membudget.Holding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, st := range l.streams {
		all = st.appendHoldingLocked(all)
	}
	for st := range l.flushing {
		all = st.appendHoldingLocked(all)
	}
	return all
}

func (st *Stream) appendHoldingLocked(all []membudget.Holding) []membudget.Holding {
	if st.unconsumed == 0 || st.r == nil || st.state.dialing() {
		return all
	}
	since := st.l.start.Add(max(st.opened, st.lastCredit)) // that is when a quarter of the window was passed on, or next to all it had
	return append(all, membudget.Holding{Bytes: st.unconsumed, Since: since, Reset: st.evict})
}

// evict ends a stream that holds too much.
func (st *Stream) evict() {
	st.Reset(tunnel.ErrEvicted.Error(), false)
	st.r.Aborted(tunnel.ErrEvicted)
	st.Consumed(tunnel.All)
}
