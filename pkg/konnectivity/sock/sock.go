// Package sock reads and writes the sockets at the two ends of a tunnel without
// tying up memory or goroutines: an idle connection holds no buffer, and a write
// never waits.
package sock

import (
	"errors"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
)

// Conn reads chunks from a connection. One goroutine at a time may read.
type Conn struct {
	nc  net.Conn
	raw syscall.RawConn // nil where the connection is not a plain socket

	// What the next read wants and what the last one got. They are fields so
	// that the callback given to the runtime is allocated once.
	want    int
	got     *buf.Chunk
	err     error
	readFn  func(fd uintptr) bool
	guess   int
	pending []byte
}

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
func (c *Conn) ReadChunk(limit int) (*buf.Chunk, error) {
	limit = min(limit, buf.MaxPayload)
	if len(c.pending) > 0 {
		chunk := buf.From(c.pending[:min(limit, len(c.pending))])
		c.pending = c.pending[chunk.Len():]
		return chunk, nil
	}
	if c.raw == nil {
		return c.readBuffered(limit)
	}
	c.want, c.got, c.err = limit, nil, nil
	if err := c.raw.Read(c.readFn); err != nil {
		return nil, err
	}
	return c.got, c.err
}

// tryRead is the callback of RawConn.Read: false means wait until readable.
func (c *Conn) tryRead(fd uintptr) bool {
	chunk := buf.Get(c.want)
	for {
		n, err := unix.Read(int(fd), chunk.Free()[:c.want])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			chunk.Release()
			return false
		case err != nil:
			chunk.Release()
			c.err = &net.OpError{Op: "read", Net: "tunnel", Err: err}
		case n == 0:
			chunk.Release()
			c.err = io.EOF
		default:
			chunk.Extend(n)
			c.got = chunk
		}
		return true
	}
}

// readBuffered serves connections without a raw socket (TLS). The chunk that
// waits starts small and grows as reads fill it, so that idle connections stay
// cheap.
func (c *Conn) readBuffered(limit int) (*buf.Chunk, error) {
	chunk := buf.Get(min(limit, c.guess))
	free := chunk.Free()
	n, err := c.nc.Read(free[:min(limit, len(free))])
	if n > 0 {
		chunk.Extend(n)
		switch {
		case n == len(free):
			c.guess = buf.MaxPayload
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

// WaitHangup waits until the peer has closed both directions or the connection
// is closed here. It returns at once with false where that cannot be seen.
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

// HungUp tells whether the peer has closed both directions.
func (c *Conn) HungUp() bool {
	if c.raw == nil {
		return false
	}
	gone := false
	_ = c.raw.Control(func(fd uintptr) { gone = hungUp(fd) })
	return gone
}

func hungUp(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
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
// yet, 0 where that is not known.
func (c *Conn) Unacked() int {
	n := 0
	if _, ok := c.nc.(*net.TCPConn); ok {
		_ = c.raw.Control(func(fd uintptr) {
			if v, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
				n = v
			}
		})
	}
	return n
}

// Abort closes the connection so that the peer sees a reset where the transport
// has one.
func Abort(nc net.Conn) {
	if t, ok := nc.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = nc.Close()
}

// IsReset tells whether err is a reset by the peer rather than an end.
func IsReset(err error) bool {
	return errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}
