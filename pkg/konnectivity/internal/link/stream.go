// SPDX-License-Identifier: Apache-2.0

package link

import (
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
)

// maxQueued is the number of bytes that one stream may have queued in the link before
// its source has to wait: the data that is being written and the data that comes next.
const maxQueued = 4 * buffer.MaxSize

// endKind is how a stream ends its sending direction.
type endKind byte

const (
	endNone endKind = iota
	endFin
	endClose
	endReset
)

// Stream is one tunneled connection on a link.
//
// The flags listed, waiting and creditQueued are not part of its state. They are independent of it
// and of each other: the first is about what this side sends, the second about the source
// of that, the third about credit for the peer. A closed stream leaves the lists that it
// is on when its turn comes.
type Stream struct {
	l  *Link
	id uint32
	r  tunnel.Receiver

	// All guarded by l.mu.
	credit       int // bytes that this side may still send
	quiet        int // credit that must arrive before BLOCKED is sent again
	queue        []*buffer.Chunk
	queued       int
	deficit      int
	round        uint32  // round in which it got its last quantum
	next         *Stream // in a flowQueue
	state        streamState
	listed       bool          // in one of the link's flow queues
	waiting      bool          // the receiver waits for Writable
	creditQueued bool          // in l.credits
	end          endKind       // sent after the queue
	reason       string        // of end
	opened       time.Duration // since the link's start

	allowed    int // bytes the peer may still send
	window     int
	slack      int // the part of the window that is the link's slack
	shrink     int // bytes by which window is to shrink
	came       int // bytes received since the peer last said BLOCKED
	owed       int // consumed bytes not yet credited
	unconsumed int
	credited   time.Duration // when it was last put in l.credits, since the link's start
	lastCredit time.Duration // when a quarter of the window was last passed on, likewise; longAgo before
	widened    time.Duration // when it last got slack, likewise
}

// longAgo is a time since the link's start that is before all others.
const longAgo = time.Duration(math.MinInt64 / 2)

var _ tunnel.Stream = (*Stream)(nil)

// SetReceiver sets the receiver of the stream. An agent calls it in OnDial.
func (st *Stream) SetReceiver(r tunnel.Receiver) {
	st.l.mu.Lock()
	st.r = r
	st.l.mu.Unlock()
}

// ID returns the ID of the stream, which is unique on its link.
func (st *Stream) ID() uint32 { return st.id }

// Send implements tunnel.Stream.
func (st *Stream) Send(c *buffer.Chunk, mayWait bool) {
	one := [1]*buffer.Chunk{c}
	st.SendAll(one[:], mayWait)
}

// SendAll implements tunnel.Stream.
func (st *Stream) SendAll(chunks []*buffer.Chunk, mayWait bool) {
	l := st.l
	l.mu.Lock()
	if st.state == stateClosed || st.end != endNone || l.err != nil {
		l.mu.Unlock()
		buffer.Release(chunks)
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
		case n <= smallFrame: // the data will wait: keystrokes share buffers
			st.queue = buffer.Enqueue(st.queue, c)
		default:
			st.queue = append(st.queue, c.Shrink())
		}
	}
	l.schedule(st)
	own := l.flushLocked(mayWait)
	l.mu.Unlock()
	l.send(own, sum <= smallFrame)
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
	if st.state == stateClosed {
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
	sent := st.state.localEnded()
	if st.state == stateClosed || sent && end != endClose && end != endReset || st.end >= end {
		return
	}
	if sent { // FIN has been sent: a control frame follows
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

// maxReason limits the text in RESET and DIALFAIL, in bytes.
const maxReason = 1024

// clip cuts a text to what fits into a frame, between two characters.
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

// text makes a text from the peer valid UTF-8. Frontends that use upstream's protocol
// get it, and they close over invalid UTF-8.
func text(p []byte) string { return strings.ToValidUTF8(string(p), "\uFFFD") }

// killLocked removes the stream: nothing more is sent or received on it.
func (st *Stream) killLocked() {
	if st.state == stateClosed {
		return
	}
	dialing := st.state.dialing()
	st.state = stateClosed
	buffer.Release(st.queue)
	st.queue, st.queued = nil, 0
	st.shutLocked()
	if st.l.err != nil {
		st.fitLocked(0)
	} else if st.unconsumed > 0 && !dialing { // no receiver holds data of a dial without an answer
		st.l.flushing[st] = struct{}{}
	}
	delete(st.l.streams, st.id)
}

// abort ends the stream from the other side.
func (st *Stream) abort(err error) {
	st.l.mu.Lock()
	if st.state == stateClosed {
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
