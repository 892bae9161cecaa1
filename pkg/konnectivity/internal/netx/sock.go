// SPDX-License-Identifier: Apache-2.0

package netx

import (
	"errors"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
)

// Conn reads chunks from a connection. One goroutine at a time may read.
type Conn struct {
	// Waits, if set, is called by a read that has to wait, or may have to where that
	// cannot be known, before it does so.
	Waits func()

	nc  net.Conn
	raw syscall.RawConn // nil where the connection is not a plain socket

	// Parameters of the next read and results of the last one. They are fields so that
	// the callback given to the runtime is allocated once.
	want    int
	got     []*buffer.Chunk
	err     error
	readFn  func(fd uintptr) bool
	level   int // index in rooms of the next read
	unpaced int // bytes read since the last wait
	few     [maxBurst]*buffer.Chunk
	guess   int
	pending []byte
}

// maxBurst is how many chunks one system call reads at most.
const maxBurst = 4

// rooms are the numbers of bytes that a read asks for. It goes up with reads that
// fill what they ask for, and down with those that do not: a connection that
// carries keystrokes, or is closed after a few bytes, needs no large buffers.
var rooms = [...]int{1024 - buffer.HeaderRoom, 16384 - buffer.HeaderRoom, buffer.MaxPayload, 2 * buffer.MaxPayload, MaxRead}

// MaxRead is the greatest number of bytes that ReadChunks returns.
const MaxRead = maxBurst * buffer.MaxPayload

// New wraps nc, which stays owned by the Conn.
func New(nc net.Conn) *Conn {
	c := &Conn{nc: nc, raw: rawOf(nc), guess: 1}
	c.readFn = c.tryRead
	return c
}

// rawOf returns the raw socket of TCP and Unix connections, on which reads can
// wait without a buffer.
func rawOf(nc net.Conn) syscall.RawConn {
	var sc syscall.Conn
	switch t := nc.(type) {
	case *net.TCPConn:
		sc = t
	case *net.UnixConn:
		sc = t
	case *fileConn:
		sc = t
	default:
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// Net returns the wrapped connection.
func (c *Conn) Net() net.Conn { return c.nc }

// Unread puts bytes back that were read before the Conn was made; they are
// returned by the next ReadChunk.
func (c *Conn) Unread(p []byte) { c.pending = append([]byte(nil), p...) }

// ReadChunk waits until bytes are there and returns at most limit of them. The
// error is io.EOF at an orderly end.
func (c *Conn) ReadChunk(limit int) (*buffer.Chunk, error) {
	chunks, err := c.ReadChunks(min(limit, buffer.MaxPayload))
	if err != nil {
		return nil, err
	}
	return chunks[0], nil
}

// ReadChunks waits until bytes are there and returns at most limit of them, in
// one chunk or more. The slice is valid until the next read.
func (c *Conn) ReadChunks(limit int) ([]*buffer.Chunk, error) {
	c.want, c.got, c.err = limit, c.few[:0], nil
	if len(c.pending) > 0 {
		chunk := buffer.From(c.pending[:min(limit, len(c.pending), buffer.MaxPayload)])
		c.pending = c.pending[chunk.Len():]
		return append(c.got, chunk), nil
	}
	if c.raw == nil {
		c.waits()
		chunk, err := c.readBuffered(min(limit, buffer.MaxPayload))
		if err != nil {
			return nil, err
		}
		return append(c.got, chunk), nil
	}
	if c.unpaced >= pollEvery {
		c.unpaced = 0
		PollNetwork()
	}
	if err := c.raw.Read(c.readFn); err != nil {
		return nil, err
	}
	return c.got, c.err
}

func (c *Conn) waits() {
	if c.Waits != nil {
		c.Waits()
	}
}

// tryRead is the callback of RawConn.Read: false means wait until readable.
func (c *Conn) tryRead(fd uintptr) bool {
	var few [maxBurst][]byte // on the stack: a connection that waits holds no room for it
	iov := few[:0]
	for left := min(c.want, rooms[c.level]); left > 0; {
		n := min(left, buffer.MaxPayload)
		chunk := buffer.Get(n)
		c.got = append(c.got, chunk)
		iov = append(iov, chunk.Free()[:n])
		left -= n
	}
	n, err := readv(int(fd), iov)
	c.keep(max(n, 0), iov)
	c.unpaced += max(n, 0)
	switch {
	case errors.Is(err, unix.EAGAIN):
		c.unpaced = 0
		c.waits()
		return false
	case err != nil:
		c.err = &net.OpError{Op: "read", Net: "tunnel", Err: err}
	case n == 0:
		c.err = io.EOF
	}
	return true
}

// keep makes n bytes the payload of the chunks, whose room is in iov, and releases those
// without any.
func (c *Conn) keep(n int, iov [][]byte) {
	read, used, asked := n, 0, 0
	for i, chunk := range c.got {
		m := min(n, len(iov[i]))
		asked += len(iov[i])
		if m == 0 {
			chunk.Release()
			c.got[i] = nil
			continue
		}
		chunk.Extend(m)
		n -= m
		used++
	}
	c.got = c.got[:used]
	switch {
	case read == asked:
		c.level = min(c.level+1, len(rooms)-1)
	case read > 0 && read <= asked/4:
		c.level = max(c.level-1, 0)
	}
}

// readBuffered serves connections without a raw socket (TLS). The chunk that
// waits starts small and grows as reads fill it, so that idle connections stay
// cheap.
func (c *Conn) readBuffered(limit int) (*buffer.Chunk, error) {
	chunk := buffer.Get(min(limit, c.guess))
	free := chunk.Free()
	n, err := c.nc.Read(free[:min(limit, len(free))])
	if n > 0 {
		chunk.Extend(n)
		switch {
		case n == len(free):
			c.guess = buffer.MaxPayload
		case n < len(free)/4:
			c.guess = 1
		}
		return chunk, nil
	}
	chunk.Release()
	if err == nil {
		err = io.ErrNoProgress
	}
	return nil, err
}

// WaitHangup waits until HungUp is true or the connection is closed here. It returns at
// once with false where reads do not come from the kernel as they are.
func (c *Conn) WaitHangup() bool {
	if c.raw == nil {
		return false
	}
	gone := false
	err := c.raw.Read(func(fd uintptr) bool {
		gone = hungUp(fd)
		return gone
	})
	return gone && err == nil
}

// HungUp reports whether the connection is over: the peer has closed both directions, or
// reset it. It is false where that cannot be seen.
func (c *Conn) HungUp() bool {
	gone := false
	if raw := rawOf(inner(c.nc)); raw != nil {
		_ = raw.Control(func(fd uintptr) { gone = hungUp(fd) })
	}
	return gone
}

// Unsent is the number of written bytes that the peer's end of a Unix socket
// has not read, or -1 where that is not known.
func (c *Conn) Unsent() int {
	if _, ok := c.nc.(*net.UnixConn); !ok {
		return -1
	}
	n := -1
	_ = c.raw.Control(func(fd uintptr) {
		if v, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			n = v
		}
	})
	return n
}

// Unacked is the number of written bytes that the peer's kernel does not have
// yet, 0 where that is not known or the peer is gone.
func (c *Conn) Unacked() int { return unacked(c.nc) }

func unacked(nc net.Conn) int {
	nc = inner(nc)
	n := 0
	if _, local := nc.(*net.UnixConn); local {
		return 0
	}
	if raw := rawOf(nc); raw != nil {
		_ = raw.Control(func(fd uintptr) {
			if v, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil && v > 0 && !hungUp(fd) {
				n = v
			}
		})
	}
	return n
}

// Abort closes the connection so that the peer sees that it was cut: by a reset on
// TCP, and with TLS without the message that announces the end. A Unix socket has
// nothing of the kind: its peer sees an end. All connections around it are closed, too:
// they may count what is open.
func Abort(nc net.Conn) {
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok {
		Abort(t.NetConn())
	} else if t, ok := nc.(interface{ SetLinger(sec int) error }); ok {
		_ = t.SetLinger(0)
	}
	_ = nc.Close()
}
