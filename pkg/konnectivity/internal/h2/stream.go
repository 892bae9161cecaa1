// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

// StreamError reports that one stream was reset.
type StreamError struct {
	Code uint32
	// Breach is the rule that the peer violated, if this side reset the stream for
	// it.
	Breach string
}

func (e *StreamError) Error() string {
	if e.Breach != "" {
		return fmt.Sprintf("HTTP/2 stream error %d: %s", e.Code, e.Breach)
	}
	return fmt.Sprintf("stream was reset with code %d", e.Code)
}

// StreamHandler handles the events of a stream. Its methods are called from Serve
// and must not block. If it has a method Flush, Serve calls it after the calls of
// Data for one read from the network.
type StreamHandler interface {
	// Headers gets response headers and trailers; client role only.
	Headers(fields []Field)
	// Data gets a piece of data, valid during the call. An error resets the
	// stream.
	Data(p []byte) error
	// End reports that the peer sends no more.
	End()
	// Closed is the last call: the stream has ended because of err.
	Closed(err error)
}

// Sender is notified when payload bytes of its chunks have left the queue of a
// stream. Sent is called with the connection's lock held and must not call methods
// of the connection.
type Sender interface{ Sent(n int) }

// message is an entry that waits for a window: a gRPC message that is complete in
// head, or a chunk that is sent as one or more DATA packets.
type message struct {
	head   []byte // of the packet that is being sent, or the whole message
	chunk  *buffer.Chunk
	left   int // bytes of chunk that belong to the packet that is being sent
	connID int64
	from   Sender
	cost   int       // bytes of memory, for a message without a chunk
	since  time.Time // when it began to wait
	inl    [wire.MaxDataHead]byte
}

// messageCost is the memory of a queued message, in bytes, in addition to its
// content.
const messageCost = 128

// next starts the next packet of the chunk.
func (m *message) next() {
	m.left = min(m.chunk.Len(), maxPacket)
	m.head = wire.AppendDataHead(m.inl[:0], m.connID, m.left)
}

// maxPacket is the number of bytes in one DATA packet. grpc-go on the other side
// takes a message of up to 32 KiB into a pooled buffer of that size, and a larger
// one into one of 1 MiB, which it clears each time. Two packets are a full chunk,
// and one is two frames.
const maxPacket = buffer.MaxPayload / 2

// Stream is one HTTP/2 stream. Its state is that of its two directions:
//
//	RFC 9113              send                      recv
//	open                  sendOpen or sendTrailing  recvOpen
//	half-closed (local)   sendEnded                 recvOpen
//	half-closed (remote)  sendOpen or sendTrailing  recvEnded, then recvDelivered
//	closed                sendEnded                 recvClosed
//
// Each direction only goes forward. A stream is closed when its send direction has ended
// and its recv direction was delivered: sendEnded with recvEnded lasts until the handler's
// End returns. The peer's RST_STREAM, a violation, and the end of the connection close it in
// each state. A stream that this side resets has sendEnded, is no longer in Conn.streams, and
// keeps its recv, because its handler gets no call.
//
// The flag pressed is not part of this: it tells how the peer uses the window.
type Stream struct {
	c  *Conn
	id uint32
	h  StreamHandler

	// Guarded by c.mu.
	sendWin  int64
	recvWin  int
	window   int  // value of recvWin when all data is consumed
	pressed  bool // the peer has used up most of it since the last update
	consumed int  // received bytes not yet returned to the window
	queue    []*message
	trailer  []byte
	send     sendState
	recv     recvState
	list     sendList
	answer   answer
	opened   time.Time // when the peer opened it
}

// SetHandler sets the handler of the stream. It is called once, from OnStream.
func (st *Stream) SetHandler(h StreamHandler) {
	st.c.mu.Lock() // Handlers may read it, for metrics
	defer st.c.mu.Unlock()
	st.h = h
}

// Conn returns the connection of the stream.
func (st *Stream) Conn() *Conn { return st.c }

// WriteHeaders sends response headers. They are sent with the next data or at
// Flush, and share its write.
func (st *Stream) WriteHeaders(fields []Field) {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	if st.send != sendEnded {
		st.c.ctrl = appendHeaders(st.c.ctrl, st.id, fields, false)
	}
}

// Flush writes what WriteHeaders and QueueControl have queued.
func (st *Stream) Flush() {
	st.c.mu.Lock()
	st.c.flushLocked()
	st.c.mu.Unlock()
}

// Finish ends the stream with trailers, after all queued data.
func (st *Stream) Finish(trailers []Field) {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	if st.send != sendOpen {
		return
	}
	st.send = sendTrailing
	st.trailer = appendHeaders(nil, st.id, trailers, true)
	st.wantLocked()
	st.c.flushLocked()
}

// Reset resets the stream at once. The handler is not notified.
func (st *Stream) Reset(code uint32) {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	st.dropLocked()
	if c.streams[st.id] != st {
		return
	}
	st.send = sendEnded
	c.ctrl = appendRST(c.ctrl, st.id, code) // also if only the peer has more to send
	c.forgetLocked(st)
	c.flushLocked()
	c.lastLocked()
}

// SendControl sends a message that is complete in b.
func (st *Stream) SendControl(b []byte) {
	st.c.mu.Lock()
	st.push(&message{head: b, cost: messageCost + len(b)})
	st.c.flushLocked()
	st.c.mu.Unlock()
}

// QueueControl queues a message like that of SendControl. It is sent together with
// the next data, at the latest after the handler calls for the input that Serve is
// reading, or at Flush.
func (st *Stream) QueueControl(b []byte) {
	st.c.mu.Lock()
	st.push(&message{head: b, cost: messageCost + len(b)})
	st.c.mu.Unlock()
}

// SendData queues DATA packets for connID with the chunks, and takes ownership of
// the chunks. It returns false when the stream can no longer send.
func (st *Stream) SendData(connID int64, from Sender, chunks ...*buffer.Chunk) bool {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !st.openLocked() {
		buffer.Release(chunks)
		return false
	}
	for _, chunk := range chunks {
		m := &message{chunk: chunk, connID: connID, from: from}
		m.next()
		st.push(m)
	}
	c.flushLocked()
	if n := len(st.queue); c.cfg.OnSent != nil && n > 0 {
		now := time.Now()
		for _, m := range st.queue[max(0, n-len(chunks)):] {
			m.since = now
		}
	}
	return true
}

// openLocked reports whether the stream can send.
func (st *Stream) openLocked() bool {
	return st.send == sendOpen && st.c.writeErr.Load() == nil
}

// Consumed returns n received bytes to the window of the stream.
func (st *Stream) Consumed(n int) { st.consume(n, false) }

// Grant is like Consumed, but sends the window update at once, even for a few
// bytes. It is for a peer whose window is shut.
func (st *Stream) Grant(n int) { st.consume(n, true) }

func (st *Stream) consume(n int, now bool) {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	st.consumed += n
	if !now && st.consumed < st.window/2 || st.recv != recvOpen {
		return
	}
	more := st.consumed + st.growLocked()
	c.ctrl = appendWindowUpdate(c.ctrl, st.id, uint32(more))
	st.recvWin += more
	st.consumed = 0
	c.flushLocked()
}

// growLocked enlarges the window of a stream whose peer waits for it, and returns
// by how much.
func (st *Stream) growLocked() (by int) {
	cfg := &st.c.cfg
	pressed := st.pressed
	st.pressed = false
	by = cfg.StreamWindow - st.window
	if by <= 0 || !pressed || st.c.streams[st.id] != st || cfg.Budget != nil && !cfg.Budget.Take(by) {
		return 0
	}
	st.window += by
	return by
}

// shrinkLocked returns to the budget what the window has grown by.
func (st *Stream) shrinkLocked() {
	if by := st.window - st.c.cfg.FirstWindow; by > 0 && st.c.cfg.Budget != nil {
		st.c.cfg.Budget.Give(by)
	}
	st.window = min(st.window, st.c.cfg.FirstWindow)
}

// push queues a message if the stream can send.
func (st *Stream) push(m *message) {
	if !st.openLocked() {
		return
	}
	st.queue = append(st.queue, m)
	st.c.answers += m.cost
	st.wantLocked()
}

// wantLocked puts the stream on the list of those with something to send.
func (st *Stream) wantLocked() {
	if st.list == listStarved && len(st.queue) == 0 {
		st.unlistLocked() // trailers need no window
	}
	if st.list == listNone && (len(st.queue) > 0 || st.send == sendTrailing) && st.send != sendEnded {
		st.list = listPump
		st.c.pump = append(st.c.pump, st)
	}
}

// Waits reports whether data of a Sender waits for the windows or the socket.
func (st *Stream) Waits(from Sender) bool {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	return slices.ContainsFunc(st.queue, func(m *message) bool { return m.from == from })
}
