// SPDX-License-Identifier: Apache-2.0

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
	if st.waiting = w == 0; st.waiting && st.queued == 0 {
		st.blockedLocked()
	}
	return w
}

func (st *Stream) windowLocked() int {
	if st.state == stateClosed || st.end != endNone {
		return maxData // Send drops it
	}
	return max(0, min(st.credit, st.l.account.Room(maxQueued)-st.queued))
}

// minQuiet is the least credit in bytes between two BLOCKED frames, whatever window the
// peer has announced.
const minQuiet = 64 << 10

// blockedLocked sends BLOCKED to the peer if the peer's window is what keeps the source
// waiting. It is called when all data that used the window up has been taken from the
// queue, so that the peer gets BLOCKED after that data. It sends BLOCKED once per window:
// a slow receiver does not need it more often.
func (st *Stream) blockedLocked() {
	l := st.l
	if st.credit > 0 || st.quiet > 0 || st.state == stateClosed || st.end != endNone || len(l.ctrl) >= maxCtrl {
		return
	}
	st.quiet = max(l.peerWindow, minQuiet)
	l.controlLocked(typeBlocked, st.id, "")
	l.kickLocked()
}

// maxCredit limits the credit that a peer can give, so that a peer that violates the
// protocol cannot make the number overflow.
const maxCredit = MaxWindow

func (st *Stream) gotCredit(more uint32) {
	l := st.l
	l.mu.Lock()
	n := int(min(more, maxCredit+1)) // also for an int of 32 bits
	if n > maxCredit-st.credit {
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
	over := st.state.remoteEnded()
	late := n > 0 && !over && time.Since(l.start)-st.credited >= creditAfter
	if !late {
		n -= st.shrinkLocked(n)
	}
	st.owed += n
	much := st.owed >= st.window/4
	if st.creditQueued || over || !much && !late {
		return
	}
	if much {
		st.growLocked()
	}
	st.oweLocked()
}

// creditAfter is the time after which credit is given for any amount that was passed on.
// It shows the sender that the receiver is slow, but not stalled. A sender may give up a
// stalled receiver.
const creditAfter = 10 * time.Second

// oweLocked makes the writer send the credit that is owed.
func (st *Stream) oweLocked() {
	st.creditQueued = true
	st.credited = time.Since(st.l.start)
	st.l.credits = append(st.l.credits, st)
	st.l.kickLocked()
}

// longestRTT is the longest round-trip time that justifies a large window.
const longestRTT = time.Second

// growLocked doubles the window of a stream whose receiver keeps up while the sender uses
// up the window faster than credit travels.
func (st *Stream) growLocked() {
	now := time.Since(st.l.start)
	since := now - st.lastCredit
	st.lastCredit = now
	// A quarter of the window took this long. If that was half a round trip, the whole
	// window is used up within two round trips. The shortest round trip counts: under load
	// the round-trip time grows with the windows themselves.
	if since <= min(time.Duration(st.l.minRTT.Load()), longestRTT)/2 {
		st.shrink = 0 // the line now justifies what the window was to shrink by
		st.widenLocked()
	}
}

// widenLocked doubles the window, up to MaxWindow, if the receiver keeps up and the budget
// allows it. It returns the bytes by which the window has grown.
func (st *Stream) widenLocked() int {
	by := st.moreLocked()
	if by == 0 || !st.l.cfg.Budget.take(by) {
		return 0
	}
	st.owed += by
	st.window += by
	return by
}

// moreLocked returns the bytes by which the window may grow next.
func (st *Stream) moreLocked() int {
	if st.unconsumed > st.window/4 {
		return 0
	}
	return max(0, min(st.window, st.l.cfg.MaxWindow-st.window))
}

// shrinkLocked withholds credit for some of n bytes passed on while the window has to
// shrink. It returns for how many bytes it did.
func (st *Stream) shrinkLocked(n int) int {
	n = min(n, st.shrink)
	st.shrink -= n
	st.window -= n
	st.l.cfg.Budget.give(n)
	return n
}

// shutLocked returns the bytes by which the window has grown and which the stream no
// longer needs, because the peer has sent its last byte. The share of the data that the
// receiver still holds is returned as it is passed on.
func (st *Stream) shutLocked() {
	st.returnSlackLocked()
	st.fitLocked(st.unconsumed)
	st.shrink = st.window - st.l.cfg.Window
}

// fitLocked makes the window as small as n unconsumed bytes allow.
func (st *Stream) fitLocked(n int) {
	st.shrink = max(0, st.window-max(n, st.l.cfg.Window))
	st.shrinkLocked(st.shrink)
}

// returnSlackLocked returns the stream's share of the slack to the link.
func (st *Stream) returnSlackLocked() {
	if st.slack > 0 {
		st.l.slack += st.slack
		st.slack = 0
		st.l.loose = slices.DeleteFunc(st.l.loose, func(o *Stream) bool { return o == st })
	}
}

// idleAfter is the time within which a stream that has slack must use up a quarter of its
// window to keep it.
const idleAfter = time.Second

// collectSlackLocked takes the slack back from streams whose receivers hold more than a
// quarter of the window, or that use less than that in a second. Their windows shrink by
// the slack as they pass on the next data.
func (l *Link) collectSlackLocked() {
	now := time.Since(l.start)
	l.loose = slices.DeleteFunc(l.loose, func(st *Stream) bool {
		if st.unconsumed <= st.window/4 && (now-st.lastCredit < idleAfter || now-st.widened < idleAfter) {
			return false
		}
		l.slack += st.slack
		st.shrink += st.slack
		st.slack = 0
		return true
	})
}

// gotBlocked doubles the window of a stream whose sender waits for credit while the
// receiver keeps up. If the round-trip time does not explain the wait, credit waits for
// CPU time: a few streams alone need more data in flight to keep both ends busy. Many
// streams do not, and their data in flight delays each keystroke, so a link has only a
// limited slack for that. As idle streams keep their windows, slack leaves half of the
// budget for growth by the round-trip time.
func (st *Stream) gotBlocked() {
	l := st.l
	l.mu.Lock()
	came := st.came
	st.came = 0
	over := st.state.remoteEnded()
	if !over && came >= l.cfg.Window && st.shrink == 0 {
		st.slackenLocked()
	}
	l.mu.Unlock()
	if !over && came < l.cfg.Window { // a peer that follows the protocol has sent at least this much
		l.broke("BLOCKED without data")
	}
}

// slackenLocked widens the window by a part of the link's slack, if there is enough.
func (st *Stream) slackenLocked() {
	l := st.l
	more := st.moreLocked()
	if l.slack < more {
		l.collectSlackLocked()
	}
	if more == 0 || l.slack < more || !l.cfg.Budget.has(more) {
		return
	}
	by := st.widenLocked()
	if by == 0 {
		return
	}
	l.slack -= by
	if st.slack == 0 {
		l.loose = append(l.loose, st)
	}
	st.slack += by
	st.widened = time.Since(l.start)
	if !st.creditQueued {
		st.oweLocked()
	}
}
