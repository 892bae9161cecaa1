package h2

import (
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/wire"
)

// pumpLocked lets the streams that have something to send do so in turn, as far
// as windows and the socket allow. Frames of one round go out in one write.
func (c *Conn) pumpLocked() {
	if c.inPump {
		return
	}
	c.inPump = true
	for len(c.pump) > 0 {
		if c.out.Buffered() > c.cfg.MaxOut {
			break
		}
		st := c.pump[0]
		c.pump = c.pump[1:]
		st.pumping = false
		if c.sendRound(st) {
			st.wantLocked()
		}
	}
	if len(c.pump) == 0 {
		c.pump = nil
	}
	c.inPump = false
	if len(c.ctrl) > 0 {
		_ = c.out.Write(c.ctrl)
		c.ctrl = c.ctrl[:0]
	}
}

// maxRound is how many bytes one stream sends before the next one gets a turn.
const maxRound = 4 * buf.MaxPayload

// maxHeads is the room for the frame headers and packet heads of one round.
const maxHeads = 2048

// sendRound sends from one stream and tells whether it could send more.
func (c *Conn) sendRound(st *Stream) (more bool) {
	c.iov, c.hdrs = c.iov[:0], c.hdrs[:0]
	if cap(c.hdrs) < maxHeads {
		c.hdrs = make([]byte, 0, maxHeads)
	}
	if len(c.ctrl) > 0 {
		c.iov = append(c.iov, c.ctrl)
	}
	total := 0
	var done []*buf.Chunk
	for len(st.queue) > 0 && total < maxRound && len(c.hdrs)+headerLen+wire.MaxDataHead <= cap(c.hdrs) {
		win := int(min(st.sendWin, c.sendWin, maxFrame))
		if win <= 0 {
			break
		}
		n, finished := c.frameFrom(st, win)
		total += n
		st.sendWin -= int64(n)
		c.sendWin -= int64(n)
		if finished != nil {
			done = append(done, finished)
		}
	}
	if len(st.queue) == 0 && st.trailing && !st.ended {
		c.iov = append(c.iov, st.trailer)
		st.ended = true
	}
	if len(c.iov) > 0 {
		_ = c.out.Write(c.iov...)
		c.ctrl = c.ctrl[:0]
	}
	for _, d := range done {
		d.Release()
	}
	clear(c.iov)
	c.afterRound(st)
	return len(st.queue) > 0 && min(st.sendWin, c.sendWin) > 0
}

// afterRound forgets a stream that is over.
func (c *Conn) afterRound(st *Stream) {
	if st.ended && st.endTold && !st.dead {
		st.dead = true
		c.removeLocked(st)
		if st.h != nil {
			go st.h.Closed(nil)
		}
	}
}

// frameFrom builds one DATA frame of at most win bytes from the first messages
// of the queue. It returns the length of the frame's payload, and the chunk that
// it came from if that is used up.
func (c *Conn) frameFrom(st *Stream, win int) (n int, finished *buf.Chunk) {
	m := st.queue[0]
	at := len(c.hdrs)
	c.hdrs = appendFrameHeader(c.hdrs, 0, frameData, 0, st.id)
	part := m.head[:min(len(m.head), win)]
	m.head = m.head[len(part):]
	n = len(part)
	if m.chunk != nil {
		c.hdrs = append(c.hdrs, part...) // the next packet of the chunk reuses the head
	}
	hdr := c.hdrs[at:]
	c.iov = append(c.iov, hdr)
	if m.chunk == nil {
		c.iov = append(c.iov, part)
	}
	if m.chunk != nil && len(m.head) == 0 {
		part := m.chunk.Bytes()[:min(m.left, win-n)]
		m.chunk.Consume(len(part))
		m.left -= len(part)
		c.iov = append(c.iov, part)
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
