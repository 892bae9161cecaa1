// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"encoding/binary"
	"time"
)

func (c *Conn) lookup(id uint32) *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams[id]
}

// idle reports whether a stream was never opened. On such a stream only HEADERS may
// arrive.
func (c *Conn) idle(id uint32) bool {
	if c.client {
		return id >= c.nextID || id%2 == 0
	}
	return id > c.lastPeer || id%2 == 0
}

func (c *Conn) dataStart(id uint32, length int) error {
	c.mu.Lock()
	c.recvUsed += length
	if c.recvUsed >= c.cfg.ConnWindow/2 {
		c.ctrl = appendWindowUpdate(c.ctrl, 0, uint32(c.recvUsed))
		c.recvUsed = 0
	}
	st := c.streams[id]
	if st == nil {
		defer c.mu.Unlock()
		if c.idle(id) {
			return &ConnError{CodeProtocol, "DATA on a stream that was never opened"}
		}
		return nil
	}
	st.recvWin -= length
	st.pressed = st.pressed || st.recvWin < st.window/4
	over, late := st.recvWin+c.unsettled() < 0, st.recv != recvOpen
	c.mu.Unlock()
	switch {
	case over:
		return &ConnError{CodeFlowControl, "peer ignores the window of a stream"}
	case late:
		st.breach(CodeStreamClosed, "DATA behind the end of the stream")
	}
	return nil
}

// unsettled returns the number of bytes by which the peer may exceed a stream's window:
// until it has received the SETTINGS of this side, it uses HTTP/2's default window.
func (c *Conn) unsettled() int {
	if c.table.none {
		return 0
	}
	return max(0, initialWindow-c.cfg.FirstWindow)
}

func (c *Conn) data(id uint32, p []byte) error {
	st := c.lookup(id)
	if st == nil || st.h == nil {
		return nil
	}
	if n := len(c.fed); n == 0 || c.fed[n-1] != st {
		c.fed = append(c.fed, st)
	}
	if err := st.h.Data(p); err != nil {
		c.mu.Lock()
		c.resetLocked(st)
		c.mu.Unlock()
		st.Reset(CodeProtocol)
		st.kill(err)
	}
	return nil
}

// padding returns the bytes of a frame that no handler consumes to the window.
func (c *Conn) padding(id uint32, n int) {
	if st := c.lookup(id); st != nil {
		st.Consumed(n)
	}
}

func (c *Conn) dataEnd(id uint32, end bool) error {
	if !end {
		return nil
	}
	if st := c.lookup(id); st != nil {
		st.peerEnded()
	}
	return nil
}

func (c *Conn) frame(typ, flags byte, id uint32, p []byte) error {
	if c.parse.hblock != nil && typ != frameContinuation {
		return &ConnError{CodeProtocol, "header block is interrupted"}
	}
	switch typ {
	case frameHeaders:
		return c.headers(flags, id, p)
	case frameContinuation:
		return c.continuation(flags, id, p)
	case frameRST:
		return c.rst(id, p)
	case frameSettings:
		return c.settings(flags, id, p)
	case framePing:
		return c.ping(flags, id, p)
	case frameGoAway:
		return c.goAway(p)
	case frameWindowUpdate:
		return c.windowUpdate(id, p)
	case framePushPromise:
		return &ConnError{CodeProtocol, "push is not allowed"}
	}
	return nil // PRIORITY and unknown frames are ignored
}

func (c *Conn) rst(id uint32, p []byte) error {
	if len(p) != 4 || id == 0 {
		return &ConnError{CodeFrameSize, "bad RST_STREAM"}
	}
	if st := c.lookup(id); st != nil {
		c.mu.Lock()
		c.resetLocked(st)
		c.mu.Unlock()
		st.kill(&StreamError{Code: binary.BigEndian.Uint32(p)})
	} else if c.idle(id) {
		return &ConnError{CodeProtocol, "RST_STREAM on an idle stream"}
	}
	return nil
}

func (c *Conn) settings(flags byte, id uint32, p []byte) error {
	if id != 0 || len(p)%6 != 0 {
		return &ConnError{CodeFrameSize, "bad SETTINGS"}
	}
	if flags&flagAck != 0 {
		c.table.acknowledged()
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	window := c.peerWin
	for ; len(p) > 0; p = p[6:] {
		v := binary.BigEndian.Uint32(p[2:])
		if binary.BigEndian.Uint16(p) == settingWindow {
			if v > maxWindow {
				return &ConnError{CodeFlowControl, "window is too large"}
			}
			window = int64(v)
		}
	}
	if window != c.peerWin { // once per frame, even if the frame repeats the setting: each change visits all streams
		c.moveWindows(window - c.peerWin)
		if c.moves.spent() {
			return &ConnError{CodeEnhanceCalm, "peer changes the window of its streams too often"}
		}
	}
	var ack [headerLen]byte
	c.acknowledge(appendFrameHeader(ack[:0], 0, frameSettings, flagAck, 0))
	return nil
}

// moveWindows applies a new initial window to all streams. The caller holds mu. When the
// window grows, every waiting stream has to be visited, so the number of changes is
// limited. A gRPC peer that measures its network changes the window some 14 times, from
// 64 KiB to 16 MiB.
func (c *Conn) moveWindows(delta int64) {
	c.peerWin += delta
	if len(c.streams) > 0 {
		c.moves.waste(time.Now())
	}
	for _, st := range c.streams {
		st.sendWin += delta
		if delta > 0 {
			st.wantLocked()
		}
	}
}

func (c *Conn) ping(flags byte, id uint32, p []byte) error {
	if len(p) != 8 || id != 0 {
		return &ConnError{CodeFrameSize, "bad PING"}
	}
	if flags&flagAck != 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var ack [headerLen + 8]byte
	c.acknowledge(append(appendFrameHeader(ack[:0], 8, framePing, flagAck, 0), p...))
	return nil
}

func (c *Conn) goAway(p []byte) error {
	if len(p) < 8 {
		return &ConnError{CodeFrameSize, "bad GOAWAY"}
	}
	c.mu.Lock()
	c.goingAway = true
	none := len(c.streams) == 0
	c.mu.Unlock()
	if none {
		return ErrGoAway
	}
	return nil
}

func (c *Conn) windowUpdate(id uint32, p []byte) error {
	if len(p) != 4 {
		return &ConnError{CodeFrameSize, "bad WINDOW_UPDATE"}
	}
	n := int64(binary.BigEndian.Uint32(p) & maxWindow)
	c.mu.Lock()
	if id == 0 {
		defer c.mu.Unlock()
		if c.sendWin += n; n == 0 || c.sendWin > maxWindow {
			return &ConnError{CodeFlowControl, "bad connection window"}
		}
		return nil // the streams that wait for it are in c.starved
	}
	st := c.streams[id]
	if st == nil {
		c.mu.Unlock()
		if c.idle(id) {
			return &ConnError{CodeProtocol, "WINDOW_UPDATE on an idle stream"}
		}
		return nil
	}
	st.sendWin += n
	bad := n == 0 || st.sendWin > maxWindow
	st.wantLocked()
	h := st.h
	c.mu.Unlock()
	if bad {
		st.breach(CodeFlowControl, "bad window")
	} else if wu, ok := h.(interface{ WindowUpdate() }); ok {
		wu.WindowUpdate()
	}
	return nil
}

// removeLocked removes a stream that has ended in both directions. It closes a
// connection that waits for its last stream.
func (c *Conn) removeLocked(st *Stream) {
	if c.streams[st.id] == st {
		c.forgetLocked(st)
		c.lastLocked()
	}
}

func (c *Conn) forgetLocked(st *Stream) {
	delete(c.streams, st.id)
	st.shrinkLocked()
	st.unlistLocked()
}

// lastLocked closes a connection that is going away once it has no streams.
func (c *Conn) lastLocked() {
	if c.goingAway && len(c.streams) == 0 {
		c.out.Close()
	}
}
