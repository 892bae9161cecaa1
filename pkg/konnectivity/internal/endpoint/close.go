// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
)

// finish closes the socket after the data queued for it. With reset, its other end
// gets a reset after that data.
func (e *End) finish(err error, reset bool) {
	if e.markClosed(err) {
		e.out.Ended = e.closedNow
		switch {
		case reset:
			e.out.Cut()
		case e.cfg.Leaving != nil && e.cfg.Leaving():
			e.out.CloseAcked()
		default:
			e.out.Close()
		}
		if e.out.Buffered() > 0 {
			e.guard(-1)
		}
	}
}

// guard closes a closing socket that takes none of the last bytes.
func (e *End) guard(last int) {
	left := e.out.Buffered()
	if left == 0 {
		return // the socket closes after the last byte
	}
	if left == last {
		e.mu.Lock()
		e.why = errStuck
		e.mu.Unlock()
		netx.Abort(e.nc) // incomplete data must not look complete
		return
	}
	time.AfterFunc(e.cfg.Stall, func() { e.guard(left) })
}

// shut closes the socket now. With reset, its other end gets a reset.
func (e *End) shut(err error, reset bool) {
	defer e.settle()
	if e.markClosed(err) {
		e.out.Discard()
	}
	if reset {
		netx.Abort(e.nc)
	} else {
		_ = e.nc.Close()
	}
	e.closedNow()
}

// settle returns to the stream everything that was held for the socket.
func (e *End) settle() {
	if st := e.stream(); st != nil {
		st.Consumed(tunnel.All)
	}
}

// markClosed marks the socket as closed and records the reason. It returns false if
// it was marked before.
func (e *End) markClosed(why error) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.closed, e.why = true, why
	for _, c := range e.held {
		c.Release()
	}
	e.held = nil
	if e.timer != nil {
		e.timer.Stop()
	}
	e.signal()
	return true
}

// closedNow calls OnClosed the first time. It is called after markClosed.
func (e *End) closedNow() {
	e.tell.Do(func() {
		e.mu.Lock()
		why := e.why
		e.mu.Unlock()
		if e.OnClosed != nil {
			e.OnClosed(why)
		}
	})
}

// watch schedules a check for progress after d. The caller holds mu.
func (e *End) watch(d time.Duration) {
	e.lastSeen = e.wrote + e.read
	if e.timer == nil {
		e.timer = time.AfterFunc(d, e.look)
	} else {
		e.timer.Reset(d)
	}
}

// look closes a socket that has made no progress.
func (e *End) look() {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return
	}
	if e.wrote+e.read != e.lastSeen && e.idleFor != e.cfg.Linger {
		e.watch(e.idleFor)
		e.mu.Unlock()
		return
	}
	waiting := e.out.Buffered() > 0 || len(e.held) > 0
	if e.idleFor == e.cfg.Linger && waiting {
		e.idleFor = e.cfg.Stall // bytes wait for the socket, so it gets more time
		e.watch(e.cfg.Stall)
		e.mu.Unlock()
		return
	}
	missing := !e.linkEnd || waiting // the socket may not have got all data
	lingered := e.idleFor == e.cfg.Linger
	e.mu.Unlock()
	e.stream().Reset(errIdle.Error(), false)
	if lingered && !missing {
		e.shut(nil, false)
	} else {
		e.shut(errIdle, missing)
	}
}
