// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/wsconn"
)

const (
	// bufferSize is that of the buffers of a connection: one for each direction while bytes move, and one for frames.
	bufferSize = 32 << 10
	// drainTime is how long a destination may go on sending that takes nothing more, or whose client is gone in order.
	drainTime = 2 * time.Second
)

var (
	writeBuffers sync.Pool
	copyBuffers  = sync.Pool{New: func() any { return new([bufferSize]byte) }}
)

// flow is what became of one direction.
type flow struct {
	n           int64
	read, write error
}

func (f flow) err() error { return errors.Join(f.read, f.write) }

// move copies until the end of one direction.
func move(to io.Writer, from io.Reader) (f flow) {
	buf := copyBuffers.Get().(*[bufferSize]byte)
	defer copyBuffers.Put(buf)
	for {
		n, err := from.Read(buf[:])
		if n > 0 {
			w, failed := to.Write(buf[:n])
			f.n += int64(w)
			if failed != nil {
				f.write = failed
				return f
			}
		}
		if errors.Is(err, io.EOF) {
			return f
		}
		if err != nil {
			f.read = err
			return f
		}
	}
}

// relay copies in both directions until both have ended. It passes on the end of each by itself, and a reset as a reset.
func relay(c *wsconn.Conn, dest net.Conn, r *record) {
	up, down := make(chan flow, 1), make(chan flow, 1)
	go func() {
		f := move(dest, c)
		if f.err() == nil {
			f.write = closeWrite(dest)
		}
		up <- f
	}()
	go func() {
		f := move(c, dest)
		if f.err() == nil {
			f.write = c.CloseWrite()
		}
		down <- f
	}()
	u, d := both(c, dest, up, down)
	r.sent, r.received = u.n, d.n
	if err := errors.Join(u.err(), d.err()); err != nil {
		r.result, r.err = resultAborted, err
		c.Abort("the connection to the destination was reset")
		abort(dest)
		return
	}
	_ = c.Close()
	_ = dest.Close()
}

// both waits for both directions. The failure of one ends the other: what waits to be written to a connection that is of no
// more use is given up.
func both(c *wsconn.Conn, dest net.Conn, up, down <-chan flow) (u, d flow) {
	select {
	case d = <-down:
		switch {
		case d.read != nil:
			abort(dest)
			c.Abort(fmt.Sprintf("the destination has reset the connection: %v", d.read))
		case d.write != nil: // the client is gone
			abort(dest)
			_ = c.Close()
		}
		return <-up, d
	case u = <-up:
	}
	if u.read != nil { // a client that resets, has broken the protocol, or is gone; it may read nothing
		abort(dest)
		c.Abort(u.read.Error())
		return u, <-down
	}
	lost, gone := c.Lost(), false
	var late <-chan time.Time
	if u.write != nil { // the destination takes no more, but what it has sent may be a whole answer
		late = time.After(drainTime)
	}
	for {
		select {
		case d = <-down:
			return u, d
		case <-lost:
			lost, gone, late = nil, true, time.After(drainTime)
		case <-late:
			_ = dest.Close()
			if gone {
				c.Abort("the client has closed the connection")
			}
			return u, <-down
		}
	}
}

func closeWrite(nc net.Conn) error {
	half, ok := nc.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// abort closes a connection so that the other side sees a reset, where there are resets.
func abort(nc net.Conn) {
	inner := nc
	for {
		outer, ok := inner.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		inner = outer.NetConn()
	}
	if tcp, ok := inner.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
		_ = inner.Close()
	}
	_ = nc.Close()
}
