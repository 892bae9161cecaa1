// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"math"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/membudget"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// Config configures a link. A zero field takes its default.
type Config struct {
	// Window is the number of bytes that the peer may send on a stream before the
	// first CREDIT. Default 256 KiB.
	Window int
	// MaxWindow is the size up to which the window of a stream grows while its
	// receiver keeps up. Default 4 MiB.
	MaxWindow int
	// Budget limits by how many bytes the windows of all streams together may
	// exceed Window. Default: a budget of its own of 32 MiB.
	Budget *Budget
	// PingAfter is the time without received data after which the link sends a
	// ping. Default 3 s.
	PingAfter time.Duration
	// DeadAfter is the time without received data after which the link is closed.
	// Default 15 s.
	DeadAfter time.Duration
	// MaxStreams is the limit for streams that have not ended. Beyond it, Dial
	// fails with tunnel.ErrFull. Default 0, no limit.
	MaxStreams int
	// OnDial is called for each dial; agent side only. It must not block.
	OnDial func(st *Stream, address string)
	// OnDrain is called when the agent wants no more dials; server side only.
	OnDrain func()
	// OnDrained is called when no dial can follow; agent side only.
	OnDrained func()
	// OnViolation is called for a stream that was reset because the peer violated
	// a rule, and for one that the peer ends twice. first reports that this is
	// the link's first violation of that rule.
	OnViolation func(rule string, first bool)
	// OnUnknown is called for a frame of an unknown type. The link skips the
	// frame. first reports that it is the link's first one.
	OnUnknown func(typ byte, first bool)
	// Counters count frames.
	Counters Counters
}

// MaxWindow is the greatest window in bytes that the protocol allows.
const MaxWindow = 1 << 30

func (c *Config) defaults() {
	if c.Window == 0 {
		c.Window = settings.DefaultLinkWindow
	}
	if c.MaxWindow == 0 {
		c.MaxWindow = settings.DefaultLinkMaxWindow
	}
	if c.Budget == nil {
		c.Budget = NewBudget(settings.DefaultLinkBudget)
	}
	if c.PingAfter == 0 {
		c.PingAfter = 3 * time.Second
	}
	if c.DeadAfter == 0 {
		c.DeadAfter = 15 * time.Second
	}
}

// Link is one connection between a server and an agent.
type Link struct {
	cfg   Config
	nc    net.Conn
	bc    *batchConn // nil where the connection does not gather writes
	start time.Time
	life  life

	mu         sync.Mutex
	streams    map[uint32]*Stream
	flushing   map[*Stream]struct{} // ended, but the data they received is not passed on yet
	account    *membudget.Account
	held       int    // bytes received and not yet passed on, of all streams
	nextID     uint32 // server: last stream opened
	seenID     uint32 // agent: highest stream seen
	peerWindow int
	slack      int       // bytes by which windows may still grow because a sender was blocked
	loose      []*Stream // streams that have some of slack
	ctrl       []byte
	credits    []*Stream // streams that owe the peer credit
	fresh      flowQueue // see schedule
	rest, old  flowQueue
	mark       *Stream // the last stream of old's round, nil if old is empty
	round      uint32  // number of old's round
	writing    bool    // a goroutine is draining the queues
	out        batch   // the batch it writes; only that goroutine uses it while writing is set
	wake       chan struct{}
	had        map[string]bool // rules that the peer has violated, and similar events
	err        error
	done       chan struct{}

	minRTT   atomic.Int64 // the shortest round trip in nanoseconds
	measured atomic.Int32 // how many round trips were measured
	lastRecv atomic.Int64 // nanoseconds since start
	pinged   atomic.Int64 // when the unanswered ping was sent, 0 if there is none

	came run // used by read only

	sent, received frameCounters
}

// New returns a link over a connection whose handshake is complete. peerWindow is
// the window that the peer announced. The caller must call Run.
func New(nc net.Conn, peerWindow int, cfg Config) *Link {
	cfg.defaults()
	l := &Link{
		cfg: cfg, nc: nc, start: time.Now(), peerWindow: peerWindow, slack: 7 * cfg.Window,
		streams: map[uint32]*Stream{}, flushing: map[*Stream]struct{}{}, wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	toServer, toAgent := wire.CloseRsp, wire.CloseReq
	if cfg.OnDial != nil { // the agent's side
		l.sent, l.received = perFrame(cfg.Counters.Sent, toServer), perFrame(cfg.Counters.Received, toAgent)
	} else {
		l.sent, l.received = perFrame(cfg.Counters.Sent, toAgent), perFrame(cfg.Counters.Received, toServer)
	}
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok {
		if l.bc, _ = t.NetConn().(*batchConn); l.bc != nil {
			netx.ShortQueues(l.bc.Conn)
			l.bc.in.Waits = l.came.pass
		}
	}
	return l
}

// Run reads and writes the link until it ends. When it returns, all streams have
// ended.
func (l *Link) Run() error {
	writerDone := make(chan struct{})
	go func() {
		defer close(writerDone)
		l.writer()
	}()
	l.watch()
	l.Probe() // measures the round-trip time
	err := l.read()
	err = l.fail(err)
	<-writerDone
	return err
}

// Close closes the link at once.
func (l *Link) Close() { _ = l.fail(net.ErrClosed) }

// Done is closed when the link has ended.
func (l *Link) Done() <-chan struct{} { return l.done }

// fail closes the link and returns the first error that did so.
func (l *Link) fail(err error) error {
	l.mu.Lock()
	if l.err != nil {
		err = l.err
		l.mu.Unlock()
		return err
	}
	l.err = err
	streams := make([]*Stream, 0, len(l.streams))
	for _, st := range l.streams {
		streams = append(streams, st)
	}
	close(l.done)
	l.account.Add(-l.held)
	l.held = 0
	for st := range l.flushing {
		st.fitLocked(0)
	}
	l.life.stop()
	l.mu.Unlock()
	for _, st := range streams {
		st.abort(tunnel.ErrLinkClosed) // before hangUp, which may block
	}
	if errors.Is(err, ErrDead) {
		netx.Abort(l.nc) // an orderly close would wait for what the peer does not take
	} else {
		l.hangUp()
	}
	return err
}

// Streams returns the number of streams, including pending dials.
func (l *Link) Streams() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.streams)
}

// Each calls f with the receiver of each stream, pending dials included. f must not call methods of the link or of its
// streams.
func (l *Link) Each(f func(tunnel.Receiver)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, st := range l.streams {
		f(st.r)
	}
}

// RTT returns the shortest round trip that was measured, 0 if none was.
func (l *Link) RTT() time.Duration { return time.Duration(l.minRTT.Load()) }

// Drain asks the server to send no more dials on this link; agent side only.
func (l *Link) Drain() { l.control(typeDrain, "") }

// GoingAway announces to the agent that the server stops soon; server side only.
func (l *Link) GoingAway() { l.control(typeDrain, "") }

// control queues a frame of the link itself and wakes the writer.
func (l *Link) control(typ byte, payload string) {
	l.mu.Lock()
	l.controlLocked(typ, 0, payload)
	l.kickLocked()
	l.mu.Unlock()
}

// controlLocked queues a frame that is sent before all data.
func (l *Link) controlLocked(typ byte, stream uint32, payload string) {
	l.ctrl = appendFrame(l.ctrl, typ, stream, payload)
	l.sent.count(typ)
}

const (
	// lastID is the highest stream ID. Stream IDs are not reused.
	lastID = math.MaxUint32
	// idReserve is how many stream IDs are left when the server asks for another
	// link.
	idReserve = 1 << 20
)

// Dial opens a stream to the address; server side only. mayWait has the meaning
// that it has in tunnel.Stream.Send.
func (l *Link) Dial(address string, r tunnel.Receiver, mayWait bool) (*Stream, error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return nil, tunnel.ErrLinkClosed
	}
	if l.cfg.MaxStreams > 0 && len(l.streams) >= l.cfg.MaxStreams {
		l.mu.Unlock()
		return nil, tunnel.ErrFull
	}
	if len(l.ctrl) > maxCtrl {
		l.mu.Unlock()
		return nil, tunnel.ErrNotReading
	}
	if l.nextID == lastID { // not ErrFull, which passes
		l.mu.Unlock()
		return nil, tunnel.ErrLinkClosed
	}
	l.nextID++
	if l.nextID == lastID-idReserve { // the agent then opens another link
		l.controlLocked(typeDrain, 0, "")
	}
	st := l.newStream(l.nextID, r)
	st.state = stateDialing
	l.controlLocked(typeDial, st.id, address)
	own := l.flushLocked(mayWait)
	l.mu.Unlock()
	l.send(own, true)
	return st, nil
}

// flushLocked has the queued frames sent. If own is true, the caller's goroutine
// has to do it: it calls send once it has released mu.
func (l *Link) flushLocked(mayWait bool) (own bool) {
	if mayWait && !l.writing && l.err == nil {
		l.writing = true
		return true
	}
	l.kickLocked()
	return false
}

// send sends the queued frames if flushLocked said so. If there is little to send,
// it first lets other runnable goroutines run: what they queue shares the TLS record
// and the system call.
func (l *Link) send(own, little bool) {
	if !own {
		return
	}
	if little {
		runtime.Gosched()
	}
	l.drain(true)
}

func (l *Link) newStream(id uint32, r tunnel.Receiver) *Stream {
	now := time.Since(l.start)
	st := &Stream{
		l: l, id: id, r: r, credit: l.peerWindow, allowed: l.cfg.Window, window: l.cfg.Window,
		opened: now, credited: now, lastCredit: longAgo, widened: longAgo,
	}
	l.streams[id] = st
	return st
}
