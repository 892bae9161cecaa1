package h2

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/sock"
)

// Config says how a connection behaves. The zero value of a field takes the
// default that is named with it.
type Config struct {
	// StreamWindow is the number of bytes a peer may send on one stream ahead
	// of what has been consumed. Default 256 KiB.
	StreamWindow int
	// FirstWindow is the same for a stream of which not much has come yet. It grows to
	// StreamWindow when the peer has used it up and that was consumed, if Budget has
	// room for it. Default StreamWindow.
	FirstWindow int
	// Budget is what windows grow by, together; nil is no bound.
	Budget Budget
	// ConnWindow is the same for the connection; it is replenished as data
	// arrives, so it bounds nothing but the peer's burst. Default 8 MiB.
	ConnWindow int
	// MaxStreams is the number of streams a client may have open. Default 1000.
	MaxStreams int
	// MaxOut is the number of bytes that may wait for the socket before
	// streams stop sending. Default 64 KiB.
	MaxOut int
	// AckDelay is for how long acknowledgements of SETTINGS and PING are
	// gathered. Default 5 ms.
	AckDelay time.Duration
	// LastWords is for how long a peer that takes nothing more is listened to. One that
	// was killed has left what it sent before, and the end behind it. Default 10 s.
	LastWords time.Duration
	// OnStream answers a stream that a client opens; server role only.
	OnStream func(st *Stream, fields []Field)
	// OnSent is told for how long a message, or the chunk of a sender, waited for the
	// windows and the socket: 0 if it left at once. It is called with the connection's
	// lock held and must not call back.
	OnSent func(wait time.Duration)
	// OnBreach is told why a connection ends whose peer broke the rules, while it
	// can still be seen who that is.
	OnBreach func(err *ConnError)
}

// Budget is a number of bytes that the streams of several connections share. It must
// not call back.
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

// floodLimit is the number of queued bytes at which a peer that makes us answer
// without reading is cut off.
const floodLimit = 4 << 20

// Conn is one HTTP/2 connection. Serve reads it; everything else may be called
// from any goroutine and never waits.
type Conn struct {
	cfg    Config
	client bool
	nc     net.Conn
	in     *sock.Conn
	out    *sock.Out
	parse  parser
	table  headerTable
	deaf   atomic.Pointer[error] // why the peer takes nothing more
	fed    []*Stream             // streams that got data from the piece being read

	mu        sync.Mutex
	streams   map[uint32]*Stream
	lastPeer  uint32 // highest stream a client opened
	nextID    uint32
	sendWin   int64 // connection window for sending
	peerWin   int64 // initial stream window of the peer
	recvUsed  int   // connection bytes received since the last update
	ctrl      []byte
	acks      []byte      // acknowledgements that are gathered until ackTimer fires
	ackTimer  *time.Timer // nil before the first one
	pump      []*Stream   // streams with something to send
	answers   int         // cost in bytes of complete messages in the streams' queues
	round     *round      // while there is something to send
	inPump    bool
	goingAway bool
	closed    bool
	lastRecv  time.Time
	pingSent  time.Time // zero when no ping is open
}

// NewServer returns the server side of a connection. Settings are sent at once,
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
		cfg: cfg, nc: nc, in: sock.New(nc), out: sock.NewOut(nc),
		streams: map[uint32]*Stream{}, sendWin: initialWindow, peerWin: initialWindow,
		lastRecv: now,
	}
	c.out.Flushed = c.flushed
	c.out.Failed = c.writeFailed
	return c
}

// Net returns the underlying connection.
func (c *Conn) Net() net.Conn { return c.nc }

// Serve reads the connection until it ends. All streams are over when it
// returns, and the connection is closed.
//
// An idle client costs a stack, mostly: what waits here keeps its frames small.
func (c *Conn) Serve() error { return c.ended(c.read()) }

func (c *Conn) read() error {
	for {
		// Not ReadChunk: one more frame on the stack of a waiting goroutine makes
		// it 4 KiB larger, for each idle client.
		chunks, err := c.in.ReadChunks(buf.MaxPayload)
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

// feed handles one piece of input and then writes all answers to it together.
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
	if len(c.pump) > 0 {
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

// Streams is the number of open streams.
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
