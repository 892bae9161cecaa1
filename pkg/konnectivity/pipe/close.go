package pipe

import (
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/sock"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel"
)

// finish closes the socket behind what is queued for it; with reset, so that its
// other end sees a reset behind that.
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

// guard gives up a closing socket that takes none of the last bytes.
func (e *End) guard(last int) {
	left := e.out.Buffered()
	if left == 0 {
		return // the socket ends behind the last byte
	}
	if left == last {
		e.mu.Lock()
		e.why = errStuck
		e.mu.Unlock()
		sock.Abort(e.nc) // what was left out must not look like all
		return
	}
	time.AfterFunc(e.cfg.Stall, func() { e.guard(left) })
}

// shut closes the socket now; with reset, so that its other end sees a reset.
func (e *End) shut(err error, reset bool) {
	defer e.settle()
	if e.markClosed(err) {
		e.out.Discard()
	}
	if reset {
		sock.Abort(e.nc)
	} else {
		_ = e.nc.Close()
	}
	e.closedNow()
}

// settle tells the stream that nothing is held for the socket any more.
func (e *End) settle() {
	if st := e.stream(); st != nil {
		st.Consumed(tunnel.All)
	}
}

// markClosed says why, and returns false when somebody else has.
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

// closedNow tells that the socket is closed, the first time. It follows markClosed.
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

// watch looks for progress after d; mu is held.
func (e *End) watch(d time.Duration) {
	e.lastSeen = e.wrote + e.read
	if e.timer == nil {
		e.timer = time.AfterFunc(d, e.look)
	} else {
		e.timer.Reset(d)
	}
}

// look closes a socket on which nothing has moved.
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
		e.idleFor = e.cfg.Stall // bytes wait for the socket: that is worth more patience
		e.watch(e.cfg.Stall)
		e.mu.Unlock()
		return
	}
	missing := !e.linkEnd || waiting // what the socket got may not be all
	lingered := e.idleFor == e.cfg.Linger
	e.mu.Unlock()
	e.stream().Reset(errIdle.Error(), false)
	if lingered && !missing {
		e.shut(nil, false)
	} else {
		e.shut(errIdle, missing)
	}
}
