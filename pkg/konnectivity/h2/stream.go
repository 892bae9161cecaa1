package h2

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/wire"
)

// StreamError says that one stream was reset.
type StreamError struct {
	Code uint32
	// Breach is the rule that the peer broke, for which it was reset here.
	Breach string
}

func (e *StreamError) Error() string {
	if e.Breach != "" {
		return fmt.Sprintf("HTTP/2 stream error %d: %s", e.Code, e.Breach)
	}
	return fmt.Sprintf("stream was reset with code %d", e.Code)
}

// StreamHandler gets what happens on a stream. Its methods are called from Serve
// and must not wait. If it has a method Flush, that is called after the calls of
// Data for one read from the network.
type StreamHandler interface {
	// Headers gets response headers and trailers; client role only.
	Headers(fields []Field)
	// Data gets a piece of data, valid during the call. An error resets the
	// stream.
	Data(p []byte) error
	// End says that the peer sends no more.
	End()
	// Closed is the last call: the stream is over because of err.
	Closed(err error)
}

// Sender is told when payload bytes of its chunks have left the queue of a
// stream. It is called with the connection's lock held and must not call back.
type Sender interface{ Sent(n int) }

// message is what waits for a window: a gRPC message that is complete in head, or
// a chunk that goes out as one DATA packet or several.
type message struct {
	head   []byte // of the packet that is being sent, or the whole message
	chunk  *buf.Chunk
	left   int // bytes of chunk that belong to the packet that is being sent
	connID int64
	from   Sender
	cost   int       // bytes of memory, for a message without a chunk
	since  time.Time // when it began to wait
	inl    [wire.MaxDataHead]byte
}

// messageCost is what a queued message takes besides its text, in bytes.
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
const maxPacket = buf.MaxPayload / 2

// Stream is one HTTP/2 stream.
type Stream struct {
	c  *Conn
	id uint32
	h  StreamHandler

	// Guarded by c.mu.
	sendWin  int64
	recvWin  int
	window   int  // what recvWin is when all is consumed
	pressed  bool // the peer has used up most of it since the last update
	consumed int  // received bytes not yet returned to the window
	queue    []*message
	trailer  []byte
	trailing bool // trailer goes out behind the queue
	ended    bool // we sent END_STREAM or RST_STREAM
	peerEnd  bool
	endTold  bool // the handler knows of peerEnd
	dead     bool
	pumping  bool
}

// SetHandler names who gets what happens; called once, from OnStream.
func (st *Stream) SetHandler(h StreamHandler) { st.h = h }

// Conn returns the connection of the stream.
func (st *Stream) Conn() *Conn { return st.c }

// WriteHeaders sends response headers. They leave with the next data or at
// Flush, so that they share its write.
func (st *Stream) WriteHeaders(fields []Field) {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	if !st.ended {
		st.c.ctrl = appendHeaders(st.c.ctrl, st.id, fields, false)
	}
}

// Flush writes what WriteHeaders and QueueControl left.
func (st *Stream) Flush() {
	st.c.mu.Lock()
	st.c.flushLocked()
	st.c.mu.Unlock()
}

// Finish ends the stream behind everything that is queued, with trailers.
func (st *Stream) Finish(trailers []Field) {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	if st.ended || st.trailing {
		return
	}
	st.trailing = true
	st.trailer = appendHeaders(nil, st.id, trailers, true)
	st.wantLocked()
	st.c.flushLocked()
}

// Reset ends the stream at once. The handler is not told.
func (st *Stream) Reset(code uint32) {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	st.dropLocked()
	if c.streams[st.id] != st {
		return
	}
	st.ended = true
	c.ctrl = appendRST(c.ctrl, st.id, code) // also where only the peer has more to send
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

// QueueControl queues such a message. It leaves with whatever is sent next, at the
// latest behind the calls for the piece that Serve is reading, or at Flush.
func (st *Stream) QueueControl(b []byte) {
	st.c.mu.Lock()
	st.push(&message{head: b, cost: messageCost + len(b)})
	st.c.mu.Unlock()
}

// SendData queues DATA packets for connID with the chunks, which it owns. It
// returns false when the stream cannot send any more.
func (st *Stream) SendData(connID int64, from Sender, chunks ...*buf.Chunk) bool {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !st.openLocked() {
		buf.Release(chunks)
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

// openLocked tells whether the stream can send.
func (st *Stream) openLocked() bool {
	return !st.ended && !st.trailing && !st.dead && st.c.deaf.Load() == nil
}

// Consumed gives n received bytes back to the window of the stream.
func (st *Stream) Consumed(n int) { st.consume(n, false) }

// Grant is Consumed for a few bytes that a peer whose window is shut is to be told of at
// once.
func (st *Stream) Grant(n int) { st.consume(n, true) }

func (st *Stream) consume(n int, now bool) {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	st.consumed += n
	if !now && st.consumed < st.window/2 || st.dead || st.peerEnd {
		return
	}
	more := st.consumed + st.growLocked()
	c.ctrl = appendWindowUpdate(c.ctrl, st.id, uint32(more))
	st.recvWin += more
	st.consumed = 0
	c.flushLocked()
}

// growLocked makes the window of a stream larger whose peer waits for it, and returns
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

// shrinkLocked gives back what the window has grown by.
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
	if !st.pumping && (len(st.queue) > 0 || st.trailing) && !st.ended {
		st.pumping = true
		st.c.pump = append(st.c.pump, st)
	}
}

// Waits tells whether something of a sender waits for the windows or the socket.
func (st *Stream) Waits(from Sender) bool {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	return slices.ContainsFunc(st.queue, func(m *message) bool { return m.from == from })
}
