// SPDX-License-Identifier: Apache-2.0

package server

import (
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

const (
	// knowDelay is what passes between the sign that the frontend has taken the
	// answer to its dial from the stream and its registering the connection.
	knowDelay = 5 * time.Millisecond
	// knowMax is for how long data is held back from a frontend whose window is so
	// large that it shows nothing. A frontend that is merely busy takes less.
	knowMax = 500 * time.Millisecond
	// probeSize makes a packet so large that reading it makes the frontend open
	// its window, which shows that it has read everything before it.
	probeSize = 16500
)

// holdState is what the server knows about whether the frontend knows a connection. It only grows.
type holdState uint8

const (
	holdUntried  holdState = iota // the frontend has sent nothing, and no data was held back
	holdProbed                    // data is held back, and a probe was sent
	holdDraining                  // a goroutine is sending the data that was held back
	holdOver                      // the frontend knows the connection
)

// whenKnown runs f, behind held data if there is any.
func (c *grpcConn) whenKnown(f func()) {
	c.mu.Lock()
	if c.hold == holdDraining || c.hold == holdProbed && len(c.held) > 0 {
		if c.ended == nil {
			c.ended = f
		}
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	f()
}

// keep holds back the first data of a destination that speaks first; mu is held and
// released. To learn when the frontend is ready it is sent a packet that frontends
// ignore.
func (c *grpcConn) keep(chunks []*buffer.Chunk) {
	for _, chunk := range chunks {
		c.held = buffer.Enqueue(c.held, chunk)
	}
	first := c.hold == holdUntried
	c.hold = max(c.hold, holdProbed)
	c.mu.Unlock()
	if first {
		c.g.holding.Add(1)
		c.g.st.SendControl(probe)
		time.AfterFunc(knowMax, c.frontendKnows)
	}
}

// probe is a DRAIN packet, which means nothing to frontends, with padding in an
// unknown field.
var probe = func() []byte {
	b := wire.AppendMessage(nil, &wire.Packet{Payload: wire.Drain})
	pad := make([]byte, probeSize)
	b = append(b, 15<<3|2, byte(probeSize&0x7f|0x80), byte(probeSize>>7&0x7f|0x80), byte(probeSize>>14))
	b = append(b, pad...)
	n := len(b) - 5
	b[1], b[2], b[3], b[4] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
	return b
}()

// frontendReads is called when the frontend has opened its window.
func (c *grpcConn) frontendReads() {
	c.mu.Lock()
	wait := c.hold == holdProbed
	c.mu.Unlock()
	if wait {
		time.AfterFunc(knowDelay, c.frontendKnows)
	}
}

// frontendKnows lets held data go, one caller at a time so that order is kept.
func (c *grpcConn) frontendKnows() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hold >= holdDraining {
		return
	}
	probed := c.hold == holdProbed
	c.hold = holdDraining
	for len(c.held) > 0 {
		held := c.held
		c.held = nil
		c.mu.Unlock()
		c.down(held)
		c.mu.Lock()
	}
	if probed {
		c.g.holding.Add(-1)
	}
	c.hold = holdOver
	f := c.ended
	c.ended = nil
	if f != nil {
		c.mu.Unlock()
		f()
		c.mu.Lock()
	}
}
