// SPDX-License-Identifier: Apache-2.0

// Package buffer hands out pooled byte buffers with room for a frame header in
// front, so that a payload read from a socket is framed without being copied.
package buffer

import (
	"sync"
	"sync/atomic"
)

const (
	// HeaderRoom is the number of bytes in front of the payload that a link
	// uses for its frame header.
	HeaderRoom = 8
	// MaxPayload is the largest payload in bytes of one buffer. With its frame
	// header in four TLS records it fits into one packet of the loopback
	// device (65,483 bytes), and it is four DATA packets that fit into an
	// HTTP/2 frame each.
	MaxPayload = 4 * 16340
	// MaxSize is the largest buffer in bytes, header room included.
	MaxSize = MaxPayload + HeaderRoom
)

// sizes are the size classes in bytes. Three are enough: a keystroke, a record,
// a bulk read.
var sizes = [...]int{1024, 16384, MaxSize}

var pools [len(sizes)]sync.Pool

var inUse atomic.Int64

// Chunk is one buffer. It has one owner at a time; who owns it calls Release.
type Chunk struct {
	mem      []byte
	off, end int
	class    int8
}

// Get returns an empty chunk with room for at least n payload bytes, at most
// MaxPayload.
func Get(n int) *Chunk {
	class := 0
	for class < len(sizes)-1 && sizes[class]-HeaderRoom < n {
		class++
	}
	inUse.Add(int64(sizes[class]))
	if c, ok := pools[class].Get().(*Chunk); ok {
		c.off, c.end = HeaderRoom, HeaderRoom
		return c
	}
	return &Chunk{mem: make([]byte, sizes[class]), off: HeaderRoom, end: HeaderRoom, class: int8(class)}
}

// From returns a chunk that holds a copy of p, which must not be longer than
// MaxPayload.
func From(p []byte) *Chunk {
	c := Get(len(p))
	c.end += copy(c.mem[c.end:], p)
	return c
}

// Release gives the memory back. The chunk must not be used afterwards.
func (c *Chunk) Release() {
	inUse.Add(-int64(sizes[c.class]))
	pools[c.class].Put(c)
}

// Release gives the memory of chunks back and returns how many bytes they held. They must
// not be used afterwards.
func Release(cs []*Chunk) (n int) {
	for _, c := range cs {
		n += c.Len()
		c.Release()
	}
	return n
}

// InUse is the number of bytes in chunks that are out of the pool, which is
// what all queues of the process hold together.
func InUse() int64 { return inUse.Load() }

// Bytes is the payload that has not been consumed.
func (c *Chunk) Bytes() []byte { return c.mem[c.off:c.end] }

// Len is the length of the payload in bytes.
func (c *Chunk) Len() int { return c.end - c.off }

// Free is the unused space behind the payload.
func (c *Chunk) Free() []byte { return c.mem[c.end:] }

// Extend declares n bytes of Free as payload.
func (c *Chunk) Extend(n int) { c.end += n }

// Append copies as much of p as fits and returns the number of bytes copied.
func (c *Chunk) Append(p []byte) int {
	n := copy(c.mem[c.end:], p)
	c.end += n
	return n
}

// Truncate drops the payload behind its first n bytes.
func (c *Chunk) Truncate(n int) { c.end = c.off + n }

// Consume drops n bytes from the front of the payload.
func (c *Chunk) Consume(n int) { c.off += n }

// WithHeader returns a header of n bytes and the payload as one slice. n must
// not be greater than HeaderRoom, and nothing may have been consumed.
func (c *Chunk) WithHeader(n int) []byte { return c.mem[c.off-n : c.end] }

// Enqueue puts c, which the queue owns from then on, behind the others, inside
// the last one where that has room: many small chunks then take about as much
// memory as they hold.
func Enqueue(queue []*Chunk, c *Chunk) []*Chunk {
	last := len(queue) - 1
	if last < 0 || len(queue[last].Free()) < c.Len() {
		return append(queue, c.Shrink())
	}
	queue[last].Append(c.Bytes())
	c.Release()
	return queue
}

// Shrink returns a chunk of the smallest class that holds the payload. It is
// called before a chunk is queued, so that a queue of keystrokes does not pin
// bulk buffers.
func (c *Chunk) Shrink() *Chunk {
	if c.class == 0 || c.Len() > (sizes[c.class]-HeaderRoom)/4 {
		return c
	}
	small := From(c.Bytes())
	c.Release()
	return small
}
