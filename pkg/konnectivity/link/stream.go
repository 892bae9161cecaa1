package link

import (
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel"
)

// maxQueued is the number of bytes one stream may have queued in the link before
// its source has to wait: what is being written and what comes next.
const maxQueued = 4 * buf.MaxSize

// endKind is how a stream ends its sending direction.
type endKind byte

const (
	endNone endKind = iota
	endFin
	endClose
	endReset
)

// Stream is one tunnelled connection on a link.
type Stream struct {
	l  *Link
	id uint32
	r  tunnel.Receiver

	// All guarded by l.mu.
	credit   int // bytes the peer lets us send
	quiet    int // credit that is to come before the peer is told again that there is none
	queue    []*buf.Chunk
	queued   int
	deficit  int
	round    uint32  // in which it got its last quantum
	next     *Stream // in a flowQueue
	listed   bool
	end      endKind // to be sent behind the queue
	reason   string
	sentEnd  bool
	gotEnd   bool
	gotClose bool
	dead     bool
	dialing  bool          // not answered yet
	waiting  bool          // the receiver waits for Writable
	owing    bool          // in l.credits
	opened   time.Duration // since the link's start

	allowed    int // bytes the peer may still send
	window     int
	slack      int // of the link's, in window
	shrink     int // bytes by which window is to become smaller
	came       int // bytes received since the peer last said BLOCKED
	owed       int // consumed bytes not yet credited
	unconsumed int
	credited   time.Duration // when it was listed there last, since the link's start
	lastCredit time.Duration // when a quarter of the window was last passed on, likewise; longAgo before
	widened    time.Duration // when it last got slack, likewise
}

// longAgo is a time since the link's start that is before all others.
const longAgo = time.Duration(math.MinInt64 / 2)

var _ tunnel.Stream = (*Stream)(nil)

// SetReceiver names the local end; agent side, from OnDial.
func (st *Stream) SetReceiver(r tunnel.Receiver) {
	st.l.mu.Lock()
	st.r = r
	st.l.mu.Unlock()
}

// ID is the number of the stream on its link.
func (st *Stream) ID() uint32 { return st.id }

// Send implements tunnel.Stream.
func (st *Stream) Send(c *buf.Chunk, mayWait bool) {
	one := [1]*buf.Chunk{c}
	st.SendAll(one[:], mayWait)
}

// SendAll implements tunnel.Stream.
func (st *Stream) SendAll(chunks []*buf.Chunk, mayWait bool) {
	l := st.l
	l.mu.Lock()
	if st.dead || st.end != endNone || l.err != nil {
		l.mu.Unlock()
		buf.Release(chunks)
		return
	}
	sum := 0
	for _, c := range chunks {
		n := c.Len()
		sum += n
		st.credit -= n
		st.queued += n
		switch {
		case !l.writing:
			st.queue = append(st.queue, c)
		case n <= smallFrame: // it will wait: keystrokes share buffers
			st.queue = buf.Enqueue(st.queue, c)
		default:
			st.queue = append(st.queue, c.Shrink())
		}
	}
	l.schedule(st)
	l.flushUnlock(mayWait, sum <= smallFrame)
}

// CloseWrite implements tunnel.Stream.
func (st *Stream) CloseWrite() { st.finish(endFin, "") }

// Close implements tunnel.Stream.
func (st *Stream) Close() { st.finish(endClose, "") }

// Reset implements tunnel.Stream.
func (st *Stream) Reset(reason string, ordered bool) {
	if ordered {
		st.finish(endReset, reason)
		return
	}
	l := st.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if st.dead {
		return
	}
	l.controlLocked(typeReset, st.id, clip(reason))
	st.killLocked()
	l.kickLocked()
}

func (st *Stream) finish(end endKind, reason string) {
	l := st.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if st.dead || st.sentEnd && end != endClose && end != endReset || st.end >= end {
		return
	}
	if st.sentEnd { // FIN is out already: the rest is said by a control frame
		st.end = end
		l.controlLocked(endFrame[end], st.id, clip(reason))
		if end == endReset {
			st.killLocked()
		}
		l.kickLocked()
		return
	}
	st.end, st.reason = end, reason
	l.schedule(st)
	l.kickLocked()
}

var endFrame = [...]byte{endFin: typeFin, endClose: typeClose, endReset: typeReset}

// maxReason bounds the text in RESET and DIALFAIL, in bytes.
const maxReason = 1024

// clip cuts a text to what a frame takes, between two characters.
func clip(s string) string {
	if len(s) <= maxReason {
		return s
	}
	n := maxReason
	for n > maxReason-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// text is what the peer says in words. Diallers of the reference protocol get it, which
// end over what is not UTF-8.
func text(p []byte) string { return strings.ToValidUTF8(string(p), "\uFFFD") }

// killLocked forgets the stream: nothing more is sent or received on it.
func (st *Stream) killLocked() {
	if st.dead {
		return
	}
	st.dead = true
	buf.Release(st.queue)
	st.queue, st.queued = nil, 0
	st.shutLocked()
	if st.l.err != nil {
		st.fitLocked(0)
	} else if st.unconsumed > 0 {
		st.l.flushing[st] = struct{}{}
	}
	delete(st.l.streams, st.id)
}

// abort ends the stream from the other side.
func (st *Stream) abort(err error) {
	st.l.mu.Lock()
	if st.dead {
		st.l.mu.Unlock()
		return
	}
	st.killLocked()
	r := st.r
	st.l.mu.Unlock()
	if r != nil {
		r.Aborted(err)
	}
}

// doneLocked forgets the stream when both directions have ended.
func (st *Stream) doneLocked() {
	if st.sentEnd && st.gotEnd {
		st.killLocked()
	}
}
