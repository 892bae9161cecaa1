package link

import (
	"errors"
	"math"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/ledger"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/sock"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/wire"
)

// Config says how a link behaves. A zero field takes its default.
type Config struct {
	// Window is the number of bytes the peer may send on a stream before the
	// first credit. Default 256 KiB.
	Window int
	// MaxWindow is the greatest size to which the window of a stream grows
	// while its receiver keeps up. Default 4 MiB.
	MaxWindow int
	// Budget bounds by how much the windows of all streams together may exceed
	// Window. Default: a budget of 32 MiB of its own.
	Budget *Budget
	// PingAfter is the silence after which a ping is sent. Default 3 s.
	PingAfter time.Duration
	// DeadAfter is the silence after which the link is closed. Default 15 s.
	DeadAfter time.Duration
	// MaxStreams bounds the streams that have not ended for Dial, which fails with
	// tunnel.ErrFull beyond it. Default 0, no bound.
	MaxStreams int
	// OnDial is called for each dial; agent side only. It must not wait.
	OnDial func(st *Stream, address string)
	// OnDrain is called when the agent wants no more dials; server side only.
	OnDrain func()
	// OnDrained is called when no dial can follow; agent side only.
	OnDrained func()
	// OnViolation is called for a stream that was reset because the peer broke
	// a rule, and for one that the peer ends twice. first says that this is the
	// link's first breach of that rule.
	OnViolation func(rule string, first bool)
	// OnUnknown is called for a frame of an unknown type, which is skipped. first
	// says that it is the link's first one.
	OnUnknown func(typ byte, first bool)
	// Counters count frames.
	Counters Counters
}

// MaxWindow is the greatest window in bytes that the protocol allows.
const MaxWindow = 1 << 30

func (c *Config) defaults() {
	if c.Window == 0 {
		c.Window = 256 << 10
	}
	if c.MaxWindow == 0 {
		c.MaxWindow = 4 << 20
	}
	if c.Budget == nil {
		c.Budget = NewBudget(32 << 20)
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
	flushing   map[*Stream]struct{} // over, but what they received is not passed on yet
	account    *ledger.Account
	held       int    // bytes received and not passed on, of all streams
	nextID     uint32 // server: last stream opened
	seenID     uint32 // agent: highest stream seen
	peerWindow int
	slack      int       // bytes by which windows may still grow because a sender was blocked
	loose      []*Stream // those that have some of it
	ctrl       []byte
	credits    []*Stream // streams that owe the peer credit
	fresh      flowQueue // as in schedule
	rest, old  flowQueue
	mark       *Stream // the last one of old's round, nil with old empty
	round      uint32  // of old
	writing    bool    // somebody drains the queues
	out        batch   // what it writes; its own while writing is set
	wake       chan struct{}
	had        map[string]bool // rules that the peer has broken, and the like
	err        error
	done       chan struct{}

	minRTT   atomic.Int64 // the shortest round trip in nanoseconds
	measured atomic.Int32 // how many of them were
	lastRecv atomic.Int64 // nanoseconds since start
	pinged   atomic.Int64 // when the open ping was sent, 0 without one

	came run // belongs to read

	sent, received frameCounters
}

// New returns a link over a connection on which the handshake is over.
// peerWindow is the window that the peer announced. Run must be called.
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
			sock.ShortQueues(l.bc.Conn)
			l.bc.in.Waits = l.came.pass
		}
	}
	return l
}

// Run reads and writes the link until it ends. All streams are over when it
// returns.
func (l *Link) Run() error {
	writerDone := make(chan struct{})
	go func() {
		defer close(writerDone)
		l.writer()
	}()
	l.watch()
	l.Probe() // to know the round-trip time
	err := l.read()
	err = l.fail(err)
	<-writerDone
	return err
}

// Close ends the link at once.
func (l *Link) Close() { _ = l.fail(net.ErrClosed) }

// Done is closed when the link has ended.
func (l *Link) Done() <-chan struct{} { return l.done }

// fail ends the link and returns the first error that did so.
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
		st.abort(tunnel.ErrLinkClosed) // before the goodbye, which may wait
	}
	if errors.Is(err, ErrDead) {
		sock.Abort(l.nc) // an orderly end would wait behind what the peer does not take
		if l.bc != nil {
			_ = l.bc.Close() // what it has read ahead is nobody's now
		}
	} else {
		l.hangUp()
	}
	return err
}

// Streams is the number of streams, those being dialled included.
func (l *Link) Streams() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.streams)
}

// Drain tells the server to dial no more here; agent side.
func (l *Link) Drain() { l.control(typeDrain, "") }

// GoingAway tells the agent that the server stops soon; server side.
func (l *Link) GoingAway() { l.control(typeDrain, "") }

// control queues a frame of the link itself and lets the writer send it.
func (l *Link) control(typ byte, payload string) {
	l.mu.Lock()
	l.controlLocked(typ, 0, payload)
	l.kickLocked()
	l.mu.Unlock()
}

// controlLocked queues a frame that goes before all data.
func (l *Link) controlLocked(typ byte, stream uint32, payload string) {
	l.ctrl = appendFrame(l.ctrl, typ, stream, payload)
	l.sent.count(typ)
}

const (
	// lastID is the last number that a stream can have: numbers are not used again.
	lastID = math.MaxUint32
	// idReserve is how many numbers are left when another link is asked for.
	idReserve = 1 << 20
)

// Dial opens a stream to the address; server side. mayWait is as in
// tunnel.Stream.Send.
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
	if l.nextID == lastID {
		l.mu.Unlock()
		return nil, tunnel.ErrFull
	}
	l.nextID++
	if l.nextID == lastID-idReserve { // the agent connects once more
		l.controlLocked(typeDrain, 0, "")
	}
	st := l.newStream(l.nextID, r)
	st.dialing = true
	l.controlLocked(typeDial, st.id, address)
	l.flushUnlock(mayWait, true)
	return st, nil
}

// flushUnlock sends what is queued, on this goroutine if it may wait, and
// releases mu. With little to send it lets the goroutines that can run do so
// first: what they queue shares the record and the system call.
func (l *Link) flushUnlock(mayWait, little bool) {
	if mayWait && !l.writing && l.err == nil {
		l.writing = true
		l.mu.Unlock()
		if little {
			runtime.Gosched()
		}
		l.drain(true)
		return
	}
	l.kickLocked()
	l.mu.Unlock()
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
