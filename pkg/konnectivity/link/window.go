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
	if st.dead || st.end != endNone {
		return maxData // Send drops it
	}
	return max(0, min(st.credit, st.l.account.Room(maxQueued)-st.queued))
}

// minQuiet is the least credit in bytes between two BLOCKED, whatever window the peer
// has announced.
const minQuiet = 64 << 10

// blockedLocked tells the peer that its window is what keeps the source waiting, if so. It
// is called when all that used the window up has been taken from the queue, so that the
// peer hears it behind that, and says it once per window: a receiver that is slow does
// not need to hear it more often.
func (st *Stream) blockedLocked() {
	l := st.l
	if st.credit > 0 || st.quiet > 0 || st.dead || st.end != endNone || len(l.ctrl) >= maxCtrl {
		return
	}
	st.quiet = max(l.peerWindow, minQuiet)
	l.controlLocked(typeBlocked, st.id, "")
	l.kickLocked()
}

// maxCredit bounds what a peer may let us send, so that a lying peer cannot make
// the number overflow.
const maxCredit = MaxWindow

func (st *Stream) gotCredit(more uint32) {
	l := st.l
	l.mu.Lock()
	n := int(min(more, maxCredit+1)) // where int has 32 bits as well
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
	over := st.gotEnd || st.dead
	late := n > 0 && !over && time.Since(l.start)-st.credited >= creditAfter
	if !late {
		n -= st.shrinkLocked(n)
	}
	st.owed += n
	much := st.owed >= st.window/4
	if st.owing || over || !much && !late {
		return
	}
	if much {
		st.growLocked()
	}
	st.oweLocked()
}

// creditAfter is the time after which credit is given for whatever was passed on. It shows
// the sender that the receiver is slow and not stuck, for which a sender may give up.
const creditAfter = 10 * time.Second

// oweLocked has the writer send credit for what is owed.
func (st *Stream) oweLocked() {
	st.owing = true
	st.credited = time.Since(st.l.start)
	st.l.credits = append(st.l.credits, st)
	st.l.kickLocked()
}

// longestRTT is the longest round trip that explains a large window.
const longestRTT = time.Second

// growLocked doubles the window of a stream whose receiver keeps up while the
// sender uses the window up faster than credit travels.
func (st *Stream) growLocked() {
	now := time.Since(st.l.start)
	since := now - st.lastCredit
	st.lastCredit = now
	// A quarter of the window took this long; the whole window is used up
	// within two round trips if that was half of one. The shortest round trip
	// counts: under load it grows with the windows themselves.
	if since <= min(time.Duration(st.l.minRTT.Load()), longestRTT)/2 {
		st.shrink = 0 // what it was to give up, the line explains now
		st.widenLocked()
	}
}

// widenLocked doubles the window, up to the greatest one, if its receiver keeps up and
// the budget allows it, and returns the bytes that it has grown by.
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

// shrinkLocked keeps back credit for some of n bytes passed on, as long as the window has
// to become smaller, and returns for how many.
func (st *Stream) shrinkLocked(n int) int {
	n = min(n, st.shrink)
	st.shrink -= n
	st.window -= n
	st.l.cfg.Budget.give(n)
	return n
}

// shutLocked gives back what the window was grown by and nobody needs any more, as the
// peer has sent its last byte. What the receiver still holds follows as it is passed on.
func (st *Stream) shutLocked() {
	st.returnSlackLocked()
	st.fitLocked(st.unconsumed)
	st.shrink = st.window - st.l.cfg.Window
}

// fitLocked makes the window as small as n bytes allow.
func (st *Stream) fitLocked(n int) {
	st.shrink = max(0, st.window-max(n, st.l.cfg.Window))
	st.shrinkLocked(st.shrink)
}

// returnSlackLocked gives the link back what the stream has of its slack.
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
// quarter of the window, or that use less than that in a second. Their windows become
// smaller by it with what they pass on next.
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
// receiver keeps up. That the line does not explain it, credit waits for processors: a few
// streams alone need more under way to keep both ends busy. Many do not, and what they
// have under way stands before each keystroke, so a link has only so much slack for that;
// and as idle streams keep their windows, slack leaves half of the budget to the line.
func (st *Stream) gotBlocked() {
	l := st.l
	l.mu.Lock()
	came := st.came
	st.came = 0
	over := st.dead || st.gotEnd
	if !over && came >= l.cfg.Window && st.shrink == 0 {
		st.slackenLocked()
	}
	l.mu.Unlock()
	if !over && came < l.cfg.Window { // an honest peer has sent as much
		l.broke("BLOCKED without data")
	}
}

// slackenLocked widens the window by some of the link's slack, if there is enough.
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
	if !st.owing {
		st.oweLocked()
	}
}
