// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/pkg/gateway/internal/gone"
)

// halfListener returns connections whose clients may end their direction while the answer is
// on its way, as "nc -N" does. net/http takes that for a client that has gone, and cancels
// the request.
type halfListener struct {
	net.Listener
	goneAfter time.Duration
}

// Accept returns the next connection.
func (l halfListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &halfConn{Conn: nc, watch: gone.Start(l.goneAfter, map[string]net.Conn{"client": nc}), changed: make(chan struct{})}, nil
}

// goneEvery is how often a connection whose client has ended its direction is asked whether
// the client has gone: a client that has closes answers with a reset to what it is sent.
const goneEvery = time.Second

// halfConn keeps the end of the client's direction from net/http while a request is answered.
type halfConn struct {
	net.Conn
	watch *gone.Watch // nothing else finds a client that vanishes during a download

	mu       sync.Mutex
	changed  chan struct{} // closed at each change of the fields below
	deadline time.Time     // for reads
	closed   bool
	stream   bool // the request that is answered does not end by itself
}

func (c *halfConn) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// Read reads. While a request is answered, net/http reads one byte, to find out whether the
// client goes; requests are read in larger pieces. With TLS, pieces are always larger.
func (c *halfConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if len(p) != 1 || n > 0 || !errors.Is(err, io.EOF) || hasClosed(c.Conn) {
			return n, err
		}
		if err := c.wait(); err != nil {
			return 0, err
		}
	}
}

// wait returns nil when the connection is to be read again, or what a read is to return.
func (c *halfConn) wait() error {
	c.mu.Lock()
	changed, left := c.changed, goneEvery
	closed, stream, deadline := c.closed, c.stream, c.deadline
	c.mu.Unlock()
	if !deadline.IsZero() {
		left = min(left, time.Until(deadline))
	}
	switch {
	case closed:
		return net.ErrClosed
	case left <= 0:
		return os.ErrDeadlineExceeded
	case stream:
		return io.EOF
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	}
	return nil
}

// hasClosed reports whether the peer of a Unix socket has closed it, and not only its own direction. Of a
// TCP connection only the answer to what is sent tells that, and keep-alive sends.
func hasClosed(nc net.Conn) (yes bool) {
	socket, ok := nc.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd)}} //nolint:gosec // a descriptor
		n, err := unix.Poll(poll, 0)
		yes = err == nil && n > 0 && poll[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
	return yes || err != nil
}

// Close closes the connection.
func (c *halfConn) Close() error {
	err := c.Conn.Close()
	_ = c.watch.Stop()
	c.change(func() { c.closed = true })
	return err
}

// CloseWrite ends the direction to the client.
func (c *halfConn) CloseWrite() error { return closeWrite(c.Conn) }

// SetDeadline sets both deadlines.
func (c *halfConn) SetDeadline(t time.Time) error {
	c.change(func() { c.deadline = t })
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline sets that of reads.
func (c *halfConn) SetReadDeadline(t time.Time) error {
	c.change(func() { c.deadline = t })
	return c.Conn.SetReadDeadline(t)
}

func closeWrite(nc net.Conn) error {
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

type halfConnKey struct{}

// withHalfConn lets handlers find the connection, below what others have wrapped it in.
func withHalfConn(ctx context.Context, nc net.Conn) context.Context {
	for {
		if c, ok := nc.(*halfConn); ok {
			return context.WithValue(ctx, halfConnKey{}, c)
		}
		wrapped, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			return ctx
		}
		nc = wrapped.NetConn()
	}
}

// streams notes that the answer to a request is a stream, which goes on until the client goes:
// there the end of the client's direction is the only sign of that. The function that it
// returns notes the stream's end.
func streams(req *http.Request) (end func()) {
	c, ok := req.Context().Value(halfConnKey{}).(*halfConn)
	if !ok {
		return func() {}
	}
	c.change(func() { c.stream = true })
	return func() { c.change(func() { c.stream = false }) }
}
