// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
)

// Config configures a connection. A zero field takes the default that its comment
// names.
type Config struct {
	// StreamWindow is the flow control window of a stream: the number of bytes that
	// the peer may send before they are consumed. Default 256 KiB.
	StreamWindow int
	// FirstWindow is the window of a stream on which little data has arrived. It grows
	// to StreamWindow when the peer has used it up and the data was consumed, if
	// Budget has room for it. Default StreamWindow.
	FirstWindow int
	// Budget limits by how much windows grow, all together; nil means unlimited.
	Budget Budget
	// ConnWindow is the flow control window of the connection. It is replenished as
	// data arrives, so it limits only the peer's burst. Default 8 MiB.
	ConnWindow int
	// MaxStreams is the number of streams a client may have open. Default 1000.
	MaxStreams int
	// MaxOut is the number of bytes that may wait for the socket before
	// streams stop sending. Default 64 KiB.
	MaxOut int
	// AckDelay is how long acknowledgements of SETTINGS and PING are collected before
	// they are sent. Default 5 ms.
	AckDelay time.Duration
	// LastWords is how long the connection still reads from a peer that no longer
	// takes data. A peer that was killed may have sent data before, followed by the
	// end of the connection. Default 10 s.
	LastWords time.Duration
	// MayOpen is called before a client's new stream is created. If it returns false,
	// the connection ends. It is called from Serve and must not block. Server role
	// only.
	MayOpen func() bool
	// OnStream handles a stream that a client opens; server role only.
	OnStream func(st *Stream, fields []Field)
	// OnSent is called with the time that a message, or the chunk of a Sender, waited
	// for the windows and the socket: 0 if it was sent at once. It is called with the
	// connection's lock held and must not call methods of the connection.
	OnSent func(wait time.Duration)
	// OnBreach is called with the protocol violation for which a connection ends,
	// while the peer can still be identified.
	OnBreach func(err *ConnError)
}

// Budget is a number of bytes that the streams of several connections share. Its
// methods must not call the connection.
type Budget interface {
	Take(n int) bool
	Give(n int)
}

func (c *Config) defaults() {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&c.StreamWindow, 256<<10)
	set(&c.FirstWindow, c.StreamWindow)
	set(&c.ConnWindow, 8<<20)
	set(&c.MaxStreams, 1000)
	set(&c.MaxOut, 64<<10)
	if c.AckDelay == 0 {
		c.AckDelay = 5 * time.Millisecond
	}
	if c.LastWords == 0 {
		c.LastWords = 10 * time.Second
	}
}

// floodLimit is the number of queued bytes at which the connection is closed because
// the peer causes answers without reading them.
const floodLimit = 4 << 20

// Conn is one HTTP/2 connection. Serve reads it. All other methods may be called from
// any goroutine and never block.
type Conn struct {
	cfg      Config
	client   bool
	nc       net.Conn
	in       *netx.Conn
	out      *netx.Out
	parse    parser
	table    headerTable
	writeErr atomic.Pointer[error] // why the peer no longer takes data
	fed      []*Stream             // streams that got data from the input being read

	mu        sync.Mutex
	streams   map[uint32]*Stream
	lastPeer  uint32 // highest stream a client opened
	resets    resetBudget
	moves     resetBudget // limits how often SETTINGS change the streams' windows
	nextID    uint32
	sendWin   int64 // connection window for sending
	peerWin   int64 // initial stream window of the peer
	recvUsed  int   // connection bytes received since the last update
	ctrl      []byte
	acks      []byte      // acknowledgements collected until ackTimer fires
	ackTimer  *time.Timer // nil before the first one
	pump      []*Stream   // streams with something to send
	starved   []*Stream   // those of pump that wait only for the connection's window
	answers   int         // cost in bytes of complete messages in the streams' queues
	round     *round      // non-nil while there is something to send
	inPump    bool
	goingAway bool
	closed    bool
	lastRecv  time.Time
	pingSent  time.Time // zero when no ping is open
}

// NewServer returns the server side of a connection. It sends SETTINGS at once,
// because gRPC clients wait for them before their first request.
func NewServer(nc net.Conn, cfg Config) *Conn {
	c := newConn(nc, cfg)
	c.parse.preface = len(preface)
	c.ctrl = appendSettings(c.ctrl, uint32(c.cfg.FirstWindow), uint32(c.cfg.MaxStreams))
	c.ctrl = appendWindowUpdate(c.ctrl, 0, uint32(c.cfg.ConnWindow-initialWindow))
	c.mu.Lock()
	c.flushLocked()
	c.mu.Unlock()
	return c
}

// NewClient returns the client side of a connection.
func NewClient(nc net.Conn, cfg Config) *Conn {
	c := newConn(nc, cfg)
	c.client, c.nextID = true, 1
	c.ctrl = append(c.ctrl, preface...)
	c.ctrl = appendSettings(c.ctrl, uint32(c.cfg.FirstWindow), 0)
	c.ctrl = appendWindowUpdate(c.ctrl, 0, uint32(c.cfg.ConnWindow-initialWindow))
	return c
}

func newConn(nc net.Conn, cfg Config) *Conn {
	cfg.defaults()
	now := time.Now()
	c := &Conn{
		cfg: cfg, nc: nc, in: netx.New(nc), out: netx.NewOut(nc),
		streams: map[uint32]*Stream{}, sendWin: initialWindow, peerWin: initialWindow,
		lastRecv: now,
	}
	c.out.Flushed = c.flushed
	c.out.Failed = c.writeFailed
	return c
}

// Net returns the underlying connection.
func (c *Conn) Net() net.Conn { return c.nc }

// Serve reads the connection until it ends. When it returns, all streams have ended
// and the connection is closed.
//
// The memory of an idle client is mostly a stack, so functions that block here keep
// their stack frames small.
func (c *Conn) Serve() error { return c.ended(c.read()) }

func (c *Conn) read() error {
	for {
		// This does not use ReadChunk: one more stack frame makes the stack of a
		// waiting goroutine 4 KiB larger, for each idle client.
		chunks, err := c.in.ReadChunks(buffer.MaxPayload)
		if err != nil {
			return c.readError(err)
		}
		err = c.feed(chunks[0].Bytes())
		chunks[0].Release()
		if err != nil {
			return err
		}
	}
}

// feed handles one piece of input and then writes all answers to it in one write.
func (c *Conn) feed(p []byte) error {
	err := c.parse.feed(p, c)
	for i, st := range c.fed {
		if f, ok := st.h.(interface{ Flush() }); ok {
			f.Flush()
		}
		c.fed[i] = nil
	}
	c.fed = c.fed[:0]
	c.mu.Lock()
	c.lastRecv, c.pingSent = time.Now(), time.Time{}
	c.flushLocked()
	flood := len(c.ctrl) > floodLimit || c.answers > floodLimit
	c.mu.Unlock()
	if err == nil && (flood || c.out.Buffered() > floodLimit) {
		err = &ConnError{CodeEnhanceCalm, "peer does not read the answers to its frames"}
	}
	return err
}

// flushLocked writes control frames and lets streams send.
func (c *Conn) flushLocked() {
	if c.dueLocked() {
		c.pumpLocked()
		return
	}
	if len(c.ctrl) > 0 {
		_ = c.out.Write(c.ctrl)
		c.ctrl = c.ctrl[:0]
		if cap(c.ctrl) > 4096 {
			c.ctrl = nil
		}
	}
}

// flushed runs when the socket has taken queued bytes.
func (c *Conn) flushed() {
	c.mu.Lock()
	c.flushLocked()
	c.mu.Unlock()
}

// Streams returns the number of open streams.
func (c *Conn) Streams() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.streams)
}

// Handlers returns the handlers of the open streams.
func (c *Conn) Handlers() []StreamHandler {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]StreamHandler, 0, len(c.streams))
	for _, st := range c.streams {
		all = append(all, st.h)
	}
	return all
}

// Open starts a stream with a request; client role only.
func (c *Conn) Open(fields []Field, h StreamHandler) *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.addStream(c.nextID)
	st.h = h
	c.nextID += 2
	c.ctrl = appendHeaders(c.ctrl, st.id, fields, false)
	c.flushLocked()
	return st
}

func (c *Conn) addStream(id uint32) *Stream {
	st := &Stream{c: c, id: id, sendWin: c.peerWin, recvWin: c.cfg.FirstWindow, window: c.cfg.FirstWindow}
	c.streams[id] = st
	return st
}
