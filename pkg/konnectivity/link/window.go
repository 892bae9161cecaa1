package link

import (
	"slices"
	"time"
)

// Window implements tunnel.Stream.
func (st *Stream) Window() int {
	st.l.mu.Lock()
	defer st.l.mu.Unlock()
	w := st.windowLocked()
	if st.waiting = w == 0; st.waiting && st.credit <= 0 {
		st.blockedLocked()
	}
	return w
}

func (st *Stream) windowLocked() int {
	if st.dead || st.end != endNone {
		return maxData // Send drops it
	}
	return max(0, min(st.credit, st.l.account.Room(maxQueued)-st.queued))
}

// blockedLocked tells the peer that its window is what keeps the source waiting. It does
// so once per window: a receiver that is slow does not need to hear it more often.
func (st *Stream) blockedLocked() {
	if st.quiet > 0 {
		return
	}
	st.quiet = st.l.peerWindow
	st.l.controlLocked(typeBlocked, st.id, "")
	st.l.kickLocked()
}

// maxCredit bounds what a peer may let us send, so that a lying peer cannot make
// the number overflow.
const maxCredit = 1 << 30

func (st *Stream) gotCredit(n int) {
	l := st.l
	l.mu.Lock()
	if st.credit+n > maxCredit {
		l.mu.Unlock()
		l.breach(st, "credit is too large")
		return
	}
	st.credit += n
	st.quiet -= min(n, st.quiet)
	wake := st.waiting && st.windowLocked() > 0
	if wake {
		st.waiting = false
	}
	r := st.r
	l.mu.Unlock()
	if wake && r != nil {
		r.Writable()
	}
}

// Consumed implements tunnel.Stream.
func (st *Stream) Consumed(n int) {
	l := st.l
	l.mu.Lock()
	defer l.mu.Unlock()
	n = st.passedOnLocked(n)
	if st.dead {
		return
	}
	st.owed += n
	if st.owed < st.window/4 || st.owing || st.gotEnd {
		return
	}
	st.growLocked()
	st.oweLocked()
}

// oweLocked has the writer send credit for what is owed.
func (st *Stream) oweLocked() {
	st.owing = true
	st.l.credits = append(st.l.credits, st)
	st.l.kickLocked()
}

// growLocked doubles the window of a stream whose receiver keeps up while the
// sender uses the window up faster than credit travels.
func (st *Stream) growLocked() {
	now := time.Now()
	since := now.Sub(st.lastCredit)
	st.lastCredit = now
	// A quarter of the window took this long; the whole window is used up
	// within two round trips if that was half of one. The shortest round trip
	// counts: under load it grows with the windows themselves.
	if since <= time.Duration(st.l.minRTT.Load())/2 {
		st.doubleLocked()
	}
}

// doubleLocked doubles the window and tells whether it may.
func (st *Stream) doubleLocked() bool {
	if st.window >= st.l.cfg.MaxWindow || st.unconsumed > st.window/4 || !st.l.cfg.Budget.take(st.window) {
		return false
	}
	st.owed += st.window
	st.window *= 2
	return true
}

// idleAfter is the time behind the last credit after which a stream needs no slack.
const idleAfter = time.Second

// collectSlackLocked takes the slack back from streams that have nothing under way
// which could stand before others: their receivers hold it, or they are idle.
func (l *Link) collectSlackLocked() {
	l.loose = slices.DeleteFunc(l.loose, func(st *Stream) bool {
		if st.unconsumed <= st.window/4 && time.Since(st.lastCredit) < idleAfter {
			return false
		}
		l.slack += st.slack
		st.slack = 0
		return true
	})
}

// gotBlocked doubles the window of a stream whose sender waits for credit while the
// receiver keeps up. That the line does not explain it, credit waits for processors: a few
// streams alone need more under way to keep both ends busy. Many do not, and what they
// have under way stands before each keystroke, so a link has only so much slack for that.
func (st *Stream) gotBlocked() {
	l := st.l
	l.mu.Lock()
	defer l.mu.Unlock()
	by := st.window
	if st.dead || st.gotEnd {
		return
	}
	if l.slack < by {
		l.collectSlackLocked()
	}
	if l.slack < by || !st.doubleLocked() {
		return
	}
	l.slack -= by
	if st.slack == 0 {
		l.loose = append(l.loose, st)
	}
	st.slack += by
	if !st.owing {
		st.oweLocked()
	}
}
