// SPDX-License-Identifier: Apache-2.0

package server

import (
	"sync/atomic"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
)

// tally counts dials and bytes. A link has one for all its connections, and each connection has its own.
type tally struct {
	dials, failures atomic.Int64
	sent, received  atomic.Int64 // bytes to and from the agent
}

// countedStream counts the bytes that a frontend sends.
type countedStream struct {
	tunnel.Stream
	at *attempt
}

// Send implements tunnel.Stream.
func (c *countedStream) Send(chunk *buffer.Chunk, mayWait bool) {
	c.at.sent(int64(chunk.Len()))
	c.Stream.Send(chunk, mayWait)
}

// SendAll implements tunnel.Stream.
func (c *countedStream) SendAll(cs []*buffer.Chunk, mayWait bool) {
	c.at.sent(sizeOf(cs))
	c.Stream.SendAll(cs, mayWait)
}

func sizeOf(cs []*buffer.Chunk) (n int64) {
	for _, c := range cs {
		n += int64(c.Len())
	}
	return n
}

func (at *attempt) sent(n int64) {
	at.moved.sent.Add(n)
	at.b.tally.sent.Add(n)
}

func (at *attempt) received(n int64) {
	at.moved.received.Add(n)
	at.b.tally.received.Add(n)
}
