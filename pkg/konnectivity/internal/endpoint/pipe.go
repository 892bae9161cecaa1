// SPDX-License-Identifier: Apache-2.0

// Package endpoint connects a socket to a stream of a link: a destination at the
// agent, an HTTP CONNECT client at the server. It needs one goroutine, which reads
// the socket. The goroutine that reads the link writes data from the link to the
// socket, as far as the socket takes it without blocking.
package endpoint

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
)

// Config holds the timeouts of an End. A zero field takes its default.
type Config struct {
	// Linger is how long a socket stays open after the frontend has gone, for the
	// other end to read the last bytes and close. Default 2 s.
	Linger time.Duration
	// Stall is how long a socket that takes no bytes is kept after the frontend has
	// gone. Default 2 min.
	Stall time.Duration
	// GiveUp, for the frontend's side, ends the stream of a socket that its other end
	// has closed, when the destination takes none of the data that this end had sent
	// for Stall. Otherwise the stream waits: the last data of a destination is for a
	// frontend that may continue to read at any time.
	GiveUp bool
	// HalfClosed is how long a connection that is closed in one direction may be
	// silent in the other. Default 1 h.
	HalfClosed time.Duration
	// Leaving, if set, reports that the process is about to exit, perhaps with its
	// network. Sockets are then closed when the other end's kernel has all bytes.
	Leaving func() bool
	// FirstData, if set, is called before the first chunk is written. It returns true
	// if writing has to wait until Open is called.
	FirstData func() (hold bool)
}

// DefaultStall is the default of Config.Stall.
const DefaultStall = 2 * time.Minute

func (c *Config) defaults() {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&c.Linger, 2*time.Second)
	set(&c.Stall, DefaultStall)
	set(&c.HalfClosed, time.Hour)
}

// socketState is what the socket's other end still does.
type socketState byte

const (
	socketOpen   socketState = iota
	socketEnded              // it sends no more
	socketClosed             // it has closed the socket and takes no more
)

// firstData is what has become of the first data for the socket.
type firstData byte

const (
	firstAwaited firstData = iota
	firstHeld              // it waits for Open
	firstPassed
)

// End is one socket at the end of a stream. It implements the stream's
// tunnel.Receiver.
type End struct {
	cfg  Config
	in   *netx.Conn
	out  *netx.Out
	nc   net.Conn
	wake chan struct{}
	// waits is set while the stream's window keeps the socket from being read.
	waits    atomic.Bool
	patience *time.Timer // used by the goroutine that reads the socket

	// OnClosed is called once, when the socket is closed. Before that, bytes may wait
	// for the socket that would be lost if the process exited. After that, the kernel
	// has them.
	OnClosed func(err error)
	// OnDialed handles Receiver.Dialed; frontend's side only.
	OnDialed func(st tunnel.Stream, err error)

	mu      sync.Mutex
	st      tunnel.Stream
	socket  socketState
	first   firstData
	linkEnd bool // the link sends no more
	closed  bool
	// peerClosed is set when the peer no longer reads what the socket sends.
	peerClosed bool
	why        error // closed for this reason; nil for an orderly end
	held       []*buffer.Chunk
	cut        error // a reset that follows held
	read       int64 // bytes from the socket
	wrote      int64 // bytes to the socket
	timer      *time.Timer
	tell       sync.Once // OnClosed
	lastSeen   int64
	idleFor    time.Duration

	dropped int
}

var _ tunnel.Receiver = (*End)(nil)

// New returns an End for a socket. Before it can carry bytes, the caller calls Start,
// unless Dialed provides the stream.
func New(in *netx.Conn, cfg Config) *End {
	cfg.defaults()
	e := &End{cfg: cfg, in: in, nc: in.Net(), out: netx.NewOut(in.Net()), wake: make(chan struct{}, 1)}
	e.out.Written = e.written
	e.out.Failed = e.writeFailed
	return e
}

// Start sets the stream.
func (e *End) Start(st tunnel.Stream) {
	e.mu.Lock()
	e.st = st
	e.mu.Unlock()
}

// Moved returns how many bytes were written to the socket and read from it so far.
func (e *End) Moved() (wrote, read int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wrote, e.read
}

// Out returns the write half of the socket, for data that precedes the tunneled
// bytes.
func (e *End) Out() *netx.Out { return e.out }

// Run reads the socket until it ends.
func (e *End) Run() {
	st := e.stream()
	for {
		w := st.Window()
		if w == 0 {
			e.awaitWindow()
			continue
		}
		cs, err := e.in.ReadChunks(w)
		if err != nil {
			e.readEnded(err)
			return
		}
		if e.discard(cs) {
			continue
		}
		st.SendAll(cs, true)
	}
}

// awaitWindow returns when the window may be open again, or when the connection has
// ended.
func (e *End) awaitWindow() {
	e.waits.Store(true)
	defer e.waits.Store(false)
	if !e.cfg.GiveUp {
		<-e.wake
		return
	}
	if e.patience == nil {
		e.patience = time.NewTimer(e.cfg.Stall / 2)
	} else {
		e.patience.Reset(e.cfg.Stall / 2)
	}
	defer e.patience.Stop()
	for gone := false; ; e.patience.Reset(e.cfg.Stall / 2) {
		select {
		case <-e.wake:
			return
		case <-e.patience.C:
		}
		hungUp := e.in.HungUp()
		if hungUp && gone {
			e.stream().Reset(errLeft.Error(), false)
			e.shut(errLeft, true)
			return
		}
		gone = hungUp
	}
}

// Blocked reports whether the stream takes nothing from the socket at present, and
// whether the socket takes nothing from the stream.
func (e *End) Blocked() (in, out bool) { return e.waits.Load(), e.out.Buffered() > 0 }

// maxDiscard is how many bytes a socket may still send after the frontend has gone. A
// socket that sends more is closed although it is still sending.
const maxDiscard = 256 << 10

// discard drops what the socket sends after the frontend has gone. If the socket
// continues to send, it is closed as soon as the other end has received what was
// written to it. TCP would have sent a reset after the first byte.
func (e *End) discard(chunks []*buffer.Chunk) bool {
	n := 0
	for _, c := range chunks {
		n += c.Len()
	}
	e.mu.Lock()
	e.read += int64(n)
	gone := e.peerClosed
	if gone {
		e.dropped += n
	}
	over := e.dropped > maxDiscard
	e.mu.Unlock()
	if !gone {
		return false
	}
	buffer.Release(chunks)
	if over {
		if e.out.Buffered() == 0 && e.in.Unacked() == 0 {
			e.shut(errUnwanted, true)
		} else {
			time.Sleep(10 * time.Millisecond)
		}
	}
	return true
}

func (e *End) stream() tunnel.Stream {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.st
}

// readEnded handles the end of the data from the socket.
func (e *End) readEnded(err error) {
	orderly := errors.Is(err, io.EOF)
	if orderly {
		if reset := e.out.WasReset(); reset != nil {
			orderly, err = false, reset
		}
	}
	if orderly && !e.in.HungUp() && e.endReading() {
		e.stream().CloseWrite()
		e.halfClosed(false)
		if e.in.WaitHangup() {
			e.peerGone()
		}
		return
	}
	if orderly {
		e.peerGone()
		return
	}
	e.stream().Reset(err.Error(), true)
	e.shut(err, true)
}

// endReading notes that the socket sends no more. It returns false if the socket
// takes no more either: a later write that fails then shows that the other end does
// not read.
func (e *End) endReading() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.socket == socketClosed {
		return false
	}
	e.socket = socketEnded
	return true
}

// peerGone handles a socket whose other end has closed both directions. What it wrote
// is still delivered, and nothing more is read.
func (e *End) peerGone() {
	e.stream().Close()
	e.shut(nil, false)
}

// halfClosed notes the end of one direction, that of the link or that of the socket, and
// closes the socket when both have ended. Held data goes first: Open ends the link's
// direction again.
func (e *End) halfClosed(link bool) {
	e.mu.Lock()
	e.linkEnd = e.linkEnd || link
	linkEnd := e.linkEnd && e.first != firstHeld
	both := e.socket == socketEnded && linkEnd
	if !both && !e.closed {
		e.idleFor = e.cfg.HalfClosed
		e.watch(e.cfg.HalfClosed)
	}
	e.mu.Unlock()
	if both {
		e.finish(nil, false)
	} else if linkEnd {
		e.out.CloseWrite()
	}
}

func (e *End) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Reasons for which this side closes a socket.
var (
	errGone     = errors.New("connection is closed")
	errIdle     = errors.New("idle after close")
	errStuck    = errors.New("takes none of the last bytes")
	errLeft     = errors.New("the client closed the connection, and the destination does not accept the last bytes")
	errUnwanted = errors.New("goes on sending after the client has closed the connection")
)

// ReadEnded ends the direction from the socket, for a caller that has read the socket
// before Run.
func (e *End) ReadEnded(err error) { e.readEnded(err) }

// SendAll sends a chunk that was read before Run, as the window allows.
func (e *End) SendAll(c *buffer.Chunk) {
	st := e.stream()
	for {
		w := st.Window()
		switch {
		case w == 0:
			e.awaitWindow()
			continue
		case w >= c.Len():
			st.Send(c, true)
			return
		}
		part := buffer.From(c.Bytes()[:w])
		c.Consume(w)
		st.Send(part, true)
	}
}
