// SPDX-License-Identifier: Apache-2.0

package h2

import "time"

// maxAcks is the number of bytes of acknowledgements that are gathered at most.
const maxAcks = 1024

// acknowledge queues an acknowledgement of SETTINGS or PING; mu is held. It is not
// sent at once: a gRPC client sends a PING with the first data that it gets behind
// the acknowledgement of the one before, to learn the size of the window it needs.
// A prompt answer wakes it up for nothing else, and makes it send the next PING
// sooner.
func (c *Conn) acknowledge(frame []byte) {
	first := len(c.acks) == 0
	c.acks = append(c.acks, frame...)
	switch {
	case len(c.acks) > maxAcks:
		c.takeAcks()
	case first && c.ackTimer == nil:
		c.ackTimer = time.AfterFunc(c.cfg.AckDelay, c.sendAcks)
	case first:
		c.ackTimer.Reset(c.cfg.AckDelay)
	}
}

func (c *Conn) takeAcks() {
	c.ctrl = append(c.ctrl, c.acks...)
	c.acks = c.acks[:0]
}

func (c *Conn) sendAcks() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.takeAcks()
		c.flushLocked()
	}
}
