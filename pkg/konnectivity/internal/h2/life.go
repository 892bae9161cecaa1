// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// Ping sends a PING unless one is unanswered. It returns how long the PING has been
// unanswered and how long nothing was received.
func (c *Conn) Ping(now time.Time) (open, silent time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	silent = now.Sub(c.lastRecv)
	if !c.pingSent.IsZero() {
		return now.Sub(c.pingSent), silent
	}
	c.pingSent = now
	c.ctrl = appendFrameHeader(c.ctrl, 8, framePing, 0, 0)
	c.ctrl = append(c.ctrl, "fairlead"...)
	c.flushLocked()
	return 0, silent
}

// Silence returns how long nothing was received, and how long a PING has been
// unanswered.
func (c *Conn) Silence(now time.Time) (silent time.Duration, pingOpen time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.pingSent.IsZero() {
		pingOpen = now.Sub(c.pingSent)
	}
	return now.Sub(c.lastRecv), pingOpen
}

// GoAway sends GOAWAY, so the peer opens no more streams. The connection ends when the
// last stream has ended.
func (c *Conn) GoAway(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.goingAway || c.closed {
		return
	}
	c.goingAway = true
	c.ctrl = appendGoAway(c.ctrl, c.lastPeer, CodeNo, reason)
	c.flushLocked()
	if len(c.streams) == 0 {
		c.out.Close()
	}
}

// Close closes the connection at once.
func (c *Conn) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.out.Discard()
	_ = c.nc.Close()
}

// Unsent reports whether the peer's kernel does not have all yet that was given to the streams, and may still get it. What waits for
// a window of the peer counts.
func (c *Conn) Unsent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.writeErr.Load() != nil {
		return false
	}
	if len(c.ctrl) > 0 || c.inPump || c.out.Buffered() > 0 || c.in.Unacked() > 0 {
		return true
	}
	for _, st := range c.streams {
		if len(st.queue) > 0 || st.send == sendTrailing {
			return true
		}
	}
	return false
}

// Leaving reports whether either side has sent GOAWAY or the connection was closed on
// this side.
func (c *Conn) Leaving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.goingAway || c.closed
}

// writeFailed lets the connection read what the peer has sent before, for the time
// LastWords.
func (c *Conn) writeFailed(err error) {
	c.writeErr.Store(&err)
	if errors.Is(err, os.ErrDeadlineExceeded) || c.nc.SetReadDeadline(time.Now().Add(c.cfg.LastWords)) != nil {
		_ = c.nc.Close() // another goroutine is ending the connection
	}
}

// readError returns the reason why the connection has ended. A failed read may not
// know it, as the kernel reports a reset only once.
func (c *Conn) readError(err error) error {
	why := c.writeErr.Load()
	switch {
	case c.Leaving() && (errors.Is(err, net.ErrClosed) || why != nil && errors.Is(err, io.EOF)):
		return io.EOF // the end was announced before
	case why != nil && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded)):
		return *why
	}
	return err
}

// ended closes the connection and reports the error to the peer, to OnBreach and to
// all streams.
func (c *Conn) ended(err error) error {
	var ce *ConnError
	c.mu.Lock()
	if errors.As(err, &ce) && !c.closed {
		c.ctrl = appendGoAway(c.ctrl, c.lastPeer, ce.Code, ce.Reason)
		c.flushLocked()
	}
	c.closed = true
	if c.ackTimer != nil {
		c.ackTimer.Stop()
	}
	streams := make([]*Stream, 0, len(c.streams))
	for _, st := range c.streams {
		streams = append(streams, st)
	}
	c.mu.Unlock()
	if ce != nil && c.cfg.OnBreach != nil {
		c.cfg.OnBreach(ce)
	}
	c.out.Discard()
	_ = c.nc.Close()
	for _, st := range streams {
		st.kill(err)
	}
	return err
}
