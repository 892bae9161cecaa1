// SPDX-License-Identifier: Apache-2.0

package netx

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// ending is how a connection ends behind the queue.
type ending byte

const (
	endHalf  ending = iota // the direction to the peer
	endWhole               // both directions
	endAcked               // both, once the peer's kernel has all
	endCut                 // both, by a reset
)

// CloseWrite ends the write direction once the queue is written. After Close, CloseAcked
// or Cut it does nothing.
func (o *Out) CloseWrite() { o.finish(endHalf) }

// Close closes the whole connection once the queue is written. Like CloseAcked and Cut,
// it does nothing if the same or a stronger way to end was requested before.
func (o *Out) Close() { o.finish(endWhole) }

// CloseAcked closes the whole connection once the queue is written and the peer's
// kernel has it. It is for a process whose network may go with it; else what Close
// leaves to the kernel arrives as well.
func (o *Out) CloseAcked() { o.finish(endAcked) }

// Cut aborts the whole connection, see Abort, once the queue is written and the
// peer's kernel has it.
func (o *Out) Cut() { o.finish(endCut) }

func (o *Out) finish(how ending) {
	o.mu.Lock()
	if o.closing && how <= o.how {
		o.mu.Unlock()
		return
	}
	o.closing, o.how = true, how
	idle := !o.running
	o.mu.Unlock()
	if !idle {
		return
	}
	// TLS says goodbye to a peer that may not read, and waits for that.
	if o.raw == nil || how >= endAcked && unacked(o.nc) > 0 {
		go o.end(how)
		return
	}
	o.end(how)
}

func (o *Out) end(how ending) {
	end(o.nc, how)
	if how != endHalf && o.Ended != nil {
		o.ended.Do(o.Ended)
	}
}

// end ends the write direction, or the connection, also where that has no halves.
func end(nc net.Conn, how ending) {
	cw, halves := nc.(interface{ CloseWrite() error })
	switch {
	case how == endCut:
		awaitAcked(nc)
		Abort(nc)
	case how == endAcked:
		awaitAcked(nc)
		_ = nc.Close()
	case how == endHalf && halves:
		_ = cw.CloseWrite()
	default:
		_ = nc.Close()
	}
}

// ackPatience is for how long a connection that is to end may take none of the
// bytes before that.
const ackPatience = 10 * time.Second

// awaitAcked returns when the peer's kernel has what was written, or takes nothing.
func awaitAcked(nc net.Conn) {
	last, since := 0, time.Now()
	for poll := time.Millisecond; ; poll = min(2*poll, 50*time.Millisecond) {
		n := unacked(nc)
		if n == 0 || n == last && time.Since(since) > ackPatience {
			return
		}
		if n != last {
			last, since = n, time.Now()
		}
		time.Sleep(poll)
	}
}

// inner is the socket below TLS.
func inner(nc net.Conn) net.Conn {
	for {
		t, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			return nc
		}
		nc = t.NetConn()
	}
}

// hungUp reports whether a connection is over, with what was not delivered before. Poll
// says so as well of one that has ended in both directions and is still delivering.
func hungUp(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(fds, 0)
	if err != nil || n == 0 || fds[0].Revents&(unix.POLLHUP|unix.POLLERR) == 0 {
		return false
	}
	info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	return err != nil || info.State == unix.BPF_TCP_CLOSE // a Unix socket delivers at once
}

// WasReset returns the reset that a write has met, if that is how the connection has
// ended. The kernel tells of a reset once: where a write was told, a read sees an end.
func (o *Out) WasReset() error {
	gone := false
	if raw := rawOf(inner(o.nc)); raw != nil {
		_ = raw.Control(func(fd uintptr) { gone = hungUp(fd) })
	}
	for since := time.Now(); gone; time.Sleep(time.Millisecond) {
		o.mu.Lock()
		met, writing := o.err, o.running
		o.mu.Unlock()
		if errors.Is(met, unix.ECONNRESET) {
			return met
		}
		if met != nil || !writing || time.Since(since) > time.Second { // a write to what is gone fails at once
			gone = false
		}
	}
	return nil
}
