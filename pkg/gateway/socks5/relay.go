// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/internal/gone"
)

// drainTime is how long a destination that takes nothing more may go on sending: its answer
// and the reset that follows it arrive together.
const drainTime = 2 * time.Second

// flow is what became of one direction: the bytes that were copied, the failure of the copy,
// and that of passing on its end.
type flow struct {
	n        int64
	err, end error
}

// relay copies in both directions until both have ended, and passes on the end of each
// direction by itself. An end that is not orderly is passed on as a reset: a client must
// not take half an answer for a whole one.
func relay(c *conn, dest gateway.Conn) {
	up, down := make(chan flow, 1), make(chan flow, 1)
	heard := &heard{r: dest}
	from, to := io.Reader(heard), io.Writer(dest)
	socket, ok := socketOf(dest)
	if ok {
		from, to = socket, socket // it can be half-closed, and the kernel copies between two sockets
	}
	watch := gone.Start(c.s.cfg.goneAfter, map[string]net.Conn{"client": c.raw, "destination": socket})
	go func() { up <- upload(c, dest, to) }()
	go func() {
		n, err := io.Copy(c.nc, from)
		if err != nil {
			down <- flow{n: n, err: err}
			return
		}
		down <- flow{n: n, end: c.nc.CloseWrite()}
	}()
	var u, d flow
	var silent error
	select {
	case u = <-up:
		switch {
		case errors.Is(u.end, errors.ErrUnsupported):
			d, silent = heard.untilSilent(down, dest)
		case u.err != nil || u.end != nil:
			timer := time.AfterFunc(drainTime, func() { _ = dest.Close() })
			defer timer.Stop()
			d = <-down
		default:
			d = <-down
		}
	case d = <-down:
		if d.err != nil {
			gone.Abort(c.raw)
			_ = dest.Close()
		}
		u = <-up
	}
	c.finish(u, d, cmp.Or(watch.Stop(), silent))
}

// socketOf returns the socket that has the bytes of a destination as they are, if there is one.
func socketOf(dest gateway.Conn) (*net.TCPConn, bool) {
	switch d := dest.(type) {
	case *net.TCPConn:
		return d, true
	case interface{ Socket() (*net.TCPConn, bool) }:
		return d.Socket()
	}
	return nil, false
}

// finish records how both directions ended, and ends the client's connection. Silent is why it was cut, if an end was.
func (c *conn) finish(u, d flow, silent error) {
	if errors.Is(u.end, errors.ErrUnsupported) {
		u.end = nil // silent is set if that made a difference
	}
	if u.err == nil && u.end == nil && left(d.end) {
		d.end = nil // the client had ended its direction, and has left since
	}
	if silent != nil {
		d.err = silent
	}
	sent, received := errors.Join(u.err, u.end), errors.Join(d.err, d.end)
	c.rec.BytesSent, c.rec.BytesReceived = u.n, d.n
	c.rec.Result = ResultOK
	for _, err := range []error{sent, received} {
		if err != nil {
			c.rec.Result, c.rec.Error = ResultAborted, err.Error()
		}
	}
	switch {
	case received != nil:
		gone.Abort(c.raw)
	case sent != nil:
		c.linger() // the answer is whole
	}
}

// left reports whether a client could not be told the end because it has left. With TLS the end is a message, which meets the reset
// that answered what came before it.
func left(err error) bool {
	return errors.Is(err, syscall.ENOTCONN) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// heard notes when a destination has last sent something.
type heard struct {
	r    io.Reader
	last atomic.Int64 // in nanoseconds since 1970; 0 is never
}

func (h *heard) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	h.last.Store(time.Now().UnixNano())
	return n, err
}

// untilSilent waits for the end of a destination that cannot learn of the client's. One that
// sends nothing for drainTime may be waiting for that end: it is closed, and the error says so.
func (h *heard) untilSilent(down <-chan flow, dest gateway.Conn) (flow, error) {
	begin := time.Now()
	for {
		last := begin
		if ns := h.last.Load(); ns > last.UnixNano() {
			last = time.Unix(0, ns)
		}
		timer := time.NewTimer(time.Until(last.Add(drainTime)))
		select {
		case d := <-down:
			timer.Stop()
			return d, nil
		case <-timer.C:
		}
		if h.last.Load() > last.UnixNano() {
			continue
		}
		_ = dest.Close()
		return <-down, fmt.Errorf("the client ended its direction, and the destination sent nothing for %v after that: "+
			"this path cannot half-close a connection, so it was closed", drainTime)
	}
}

// upload copies what the client sends, beginning with what it sent ahead of the reply. It writes to the destination, or to
// its socket.
func upload(c *conn, dest gateway.Conn, to io.Writer) flow {
	var ahead int64
	if n := c.in.Buffered(); n > 0 {
		head, _ := c.in.Peek(n)
		written, err := to.Write(head)
		ahead = int64(written)
		if err != nil {
			return flow{n: ahead, err: err}
		}
	}
	c.in = nil // its memory is free for the rest of the connection
	n, err := io.Copy(to, c.nc)
	if err != nil {
		return flow{n: ahead + n, err: err}
	}
	return flow{n: ahead + n, end: dest.CloseWrite()}
}
