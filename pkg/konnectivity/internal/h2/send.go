// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

// pumpLocked lets the streams that have something to send do so in turn, as far
// as windows and the socket allow. Frames of one round go out in one write.
func (c *Conn) pumpLocked() {
	if c.inPump {
		return
	}
	c.inPump = true
	if c.dueLocked() {
		c.round = rounds.Get().(*round)
		c.sendRounds()
		rounds.Put(c.round)
		c.round = nil
	}
	c.inPump = false
	if len(c.ctrl) > 0 {
		_ = c.out.Write(c.ctrl)
		c.ctrl = c.ctrl[:0]
	}
}

// maxRound is how many bytes one stream sends before the next one gets a turn.
const maxRound = 4 * buffer.MaxPayload

// maxHeads is the room for the frame headers and packet heads of one round.
const maxHeads = 2048

// round is what one round is built of. An idle connection needs none.
type round struct {
	iov  [][]byte
	hdrs []byte // does not grow: iov points into it
}

var rounds = sync.Pool{New: func() any { return &round{hdrs: make([]byte, 0, maxHeads)} }}

// dueLocked reports whether a stream may have something to send now.
func (c *Conn) dueLocked() bool { return len(c.pump) > 0 || len(c.starved) > 0 && c.sendWin > 0 }

func (c *Conn) sendRounds() {
	for c.dueLocked() {
		if c.out.Buffered() > c.cfg.MaxOut {
			return
		}
		st := c.takeLocked()
		if len(st.queue) > 0 && c.sendWin <= 0 {
			st.starveLocked()
			continue
		}
		if c.sendRound(st) {
			st.wantLocked()
		}
		st.starveLocked()
	}
	c.pump = nil
}

// takeLocked takes the stream whose turn it is: of those that have waited for the
// connection's window the first, when that is open. A window of some bytes costs the
// streams that get them, and not a look at all that wait.
func (c *Conn) takeLocked() *Stream {
	from := &c.pump
	if len(c.starved) > 0 && c.sendWin > 0 {
		from = &c.starved
	}
	st := (*from)[0]
	(*from)[0] = nil
	if *from = (*from)[1:]; len(*from) == 0 {
		*from = nil
	}
	st.list = listNone
	return st
}

// starveLocked puts a stream that can send nothing, because the connection's window is
// shut, on the list of those that wait for that. One whose own window is shut waits for
// that first.
func (st *Stream) starveLocked() {
	if st.list == listNone && st.send != sendEnded && len(st.queue) > 0 && st.c.sendWin <= 0 && st.sendWin > 0 {
		st.list = listStarved
		st.c.starved = append(st.c.starved, st)
	}
}

// unlistLocked takes a stream from the list of those that wait to send.
func (st *Stream) unlistLocked() {
	from := &st.c.pump
	if st.list == listStarved {
		from = &st.c.starved
	}
	if i := slices.Index(*from, st); st.list != listNone && i >= 0 {
		*from = slices.Delete(*from, i, i+1)
	}
	st.list = listNone
}

// sendRound sends from one stream and tells whether it could send more.
func (c *Conn) sendRound(st *Stream) (more bool) {
	r := c.round
	r.iov, r.hdrs = r.iov[:0], r.hdrs[:0]
	if len(c.ctrl) > 0 {
		r.iov = append(r.iov, c.ctrl)
	}
	total := 0
	var done []*buffer.Chunk
	for len(st.queue) > 0 && total < maxRound && len(r.hdrs)+headerLen+wire.MaxDataHead <= cap(r.hdrs) {
		win := int(min(st.sendWin, c.sendWin, maxFrame))
		if win <= 0 {
			break
		}
		n, finished := c.frameFrom(st, win)
		st.answer = answerSent
		total += n
		st.sendWin -= int64(n)
		c.sendWin -= int64(n)
		if finished != nil {
			done = append(done, finished)
		}
	}
	if len(st.queue) == 0 && st.send == sendTrailing {
		r.iov = append(r.iov, st.trailer)
		st.send = sendEnded
	}
	if len(r.iov) > 0 {
		_ = c.out.Write(r.iov...)
		c.ctrl = c.ctrl[:0]
	}
	for _, d := range done {
		d.Release()
	}
	clear(r.iov)
	c.afterRound(st)
	return len(st.queue) > 0 && min(st.sendWin, c.sendWin) > 0
}

// afterRound forgets a stream that is over.
func (c *Conn) afterRound(st *Stream) {
	if st.send == sendEnded && st.recv == recvDelivered {
		st.recv = recvClosed
		c.removeLocked(st)
		if st.h != nil {
			go st.h.Closed(nil)
		}
	}
}

// frameFrom builds one DATA frame of at most win bytes from the first messages
// of the queue. It returns the length of the frame's payload, and the chunk that
// it came from if that is used up.
func (c *Conn) frameFrom(st *Stream, win int) (n int, finished *buffer.Chunk) {
	r, m := c.round, st.queue[0]
	at := len(r.hdrs)
	r.hdrs = appendFrameHeader(r.hdrs, 0, frameData, 0, st.id)
	part := m.head[:min(len(m.head), win)]
	m.head = m.head[len(part):]
	n = len(part)
	if m.chunk != nil {
		r.hdrs = append(r.hdrs, part...) // the next packet of the chunk reuses the head
	}
	hdr := r.hdrs[at:]
	r.iov = append(r.iov, hdr)
	if m.chunk == nil {
		r.iov = append(r.iov, part)
	}
	if m.chunk != nil && len(m.head) == 0 {
		part := m.chunk.Bytes()[:min(m.left, win-n)]
		m.chunk.Consume(len(part))
		m.left -= len(part)
		r.iov = append(r.iov, part)
		n += len(part)
		m.from.Sent(len(part))
	}
	switch {
	case len(m.head) > 0 || m.left > 0:
	case m.chunk != nil && m.chunk.Len() > 0:
		m.next()
	default:
		finished = m.chunk
		c.answers -= m.cost
		c.left(m)
		st.queue[0] = nil
		st.queue = st.queue[1:]
		if len(st.queue) == 0 {
			st.queue = nil
		}
	}
	hdr[0], hdr[1], hdr[2] = byte(n>>16), byte(n>>8), byte(n)
	return n, finished
}

// left tells for how long a message waited. The clock is not asked about one that left
// at once.
func (c *Conn) left(m *message) {
	switch {
	case c.cfg.OnSent == nil:
	case m.since.IsZero():
		c.cfg.OnSent(0)
	default:
		c.cfg.OnSent(time.Since(m.since))
	}
}
