// SPDX-License-Identifier: Apache-2.0

package netx

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
)

// ErrClosed is returned for writes after the write half was closed.
var ErrClosed = errors.New("write half is closed")

// Out is the write half of a connection, for callers that must not block. Data that the
// socket does not take at once is queued. A goroutine that exists only while there is a
// queue writes it.
type Out struct {
	nc  net.Conn
	raw syscall.RawConn

	// Written is called, without locks held, after n bytes were written to the socket,
	// from the queue or directly. Failed is called once when a write fails.
	Written func(n int)
	Failed  func(err error)
	// Ended is called once, without locks held, when Close or Cut has closed the
	// connection after the queue was written. It is not called if the queue is dropped,
	// because a write failed or by Discard.
	Ended func()
	// Flushed is called by the flusher after each write, without locks held.
	Flushed func()
	// Took, if set, is called with the time that each write waited for the socket: 0 if
	// the socket took all of it at once. It must not call methods of Out.
	Took func(d time.Duration)

	mu      sync.Mutex
	queue   []*buffer.Chunk
	owned   int  // chunks at the head of the queue that the flusher is writing
	queued  int  // bytes in queue
	running bool // the flusher exists
	closing bool // CloseWrite or Close once the queue is empty
	how     ending
	ended   sync.Once // calls Ended once
	err     error

	// For the direct attempt; guarded by mu.
	try   [][]byte
	wrote int
	werr  error
	tryFn func(fd uintptr) bool
	iov   [][]byte
}

// NewOut returns the write half of nc. Set Written and Failed before writing.
func NewOut(nc net.Conn) *Out {
	o := &Out{nc: nc, raw: rawOf(nc)}
	o.tryFn = o.tryWrite
	return o
}

// Buffered returns the number of bytes that wait for the socket.
func (o *Out) Buffered() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queued
}

// WriteChunks writes or queues the chunks in order. It takes ownership of the chunks, but
// not of the slice.
func (o *Out) WriteChunks(cs []*buffer.Chunk) error {
	o.mu.Lock()
	if err := o.usable(); err != nil {
		o.mu.Unlock()
		buffer.Release(cs)
		return err
	}
	n, err := 0, error(nil)
	if !o.running {
		n, err = o.direct(o.gather(cs))
		clear(o.iov)
	}
	skip := n
	for _, c := range cs {
		took := min(skip, c.Len())
		skip -= took
		c.Consume(took)
		if err == nil && c.Len() > 0 {
			o.enqueue(c)
		} else {
			o.took(0)
			c.Release()
		}
	}
	o.mu.Unlock()
	return o.report(n, err)
}

// maxGather is the maximum number of chunks that one system call writes. Linux takes
// 1,024.
const maxGather = 64

// gather returns the bytes of the first chunks for one system call. The result is valid
// until the next call. The caller holds mu.
func (o *Out) gather(cs []*buffer.Chunk) [][]byte {
	o.iov = o.iov[:0]
	for _, c := range cs[:min(len(cs), maxGather)] {
		o.iov = append(o.iov, c.Bytes())
	}
	return o.iov
}

// Write writes or queues the slices in order as one unit. It copies the bytes that it
// queues.
func (o *Out) Write(bufs ...[]byte) error {
	o.mu.Lock()
	if err := o.usable(); err != nil {
		o.mu.Unlock()
		return err
	}
	n, err := o.direct(bufs)
	if err == nil {
		skip := n
		for _, b := range bufs {
			if skip >= len(b) {
				skip -= len(b)
				continue
			}
			o.copyIn(b[skip:])
			skip = 0
		}
	}
	o.mu.Unlock()
	return o.report(n, err)
}

// Discard drops the queue and refuses further writes. It does not close the
// connection.
func (o *Out) Discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail(ErrClosed)
}

func (o *Out) usable() error {
	if o.err != nil {
		return o.err
	}
	if o.closing {
		return ErrClosed
	}
	return nil
}

// direct tries to write at once. It does not write while there is a queue, which would
// break the order, or without a raw socket, where a write could block.
func (o *Out) direct(bufs [][]byte) (int, error) {
	if o.running || o.raw == nil {
		return 0, nil
	}
	o.try, o.wrote, o.werr = bufs, 0, nil
	err := o.raw.Write(o.tryFn)
	o.try = nil
	if err == nil {
		err = o.werr
	}
	if err != nil {
		o.fail(err)
	}
	return o.wrote, err
}

func (o *Out) took(d time.Duration) {
	if o.Took != nil {
		o.Took(d)
	}
}

func (o *Out) tryWrite(fd uintptr) bool {
	o.wrote, o.werr = writev(int(fd), o.try)
	if errors.Is(o.werr, unix.EAGAIN) {
		o.werr = nil
	}
	return true
}

func (o *Out) report(n int, err error) error {
	if n > 0 && o.Written != nil {
		o.Written(n)
	}
	if err != nil && o.Failed != nil {
		o.Failed(err)
	}
	return err
}

func (o *Out) copyIn(b []byte) {
	for len(b) > 0 {
		if last := len(o.queue) - 1; last >= max(o.owned, 1) && len(o.queue[last].Free()) > 0 {
			n := o.queue[last].Append(b)
			o.queued += n
			b = b[n:]
			continue
		}
		c := buffer.From(b[:min(len(b), buffer.MaxPayload)])
		b = b[c.Len():]
		o.push(c)
	}
}

// enqueue queues a chunk. It does not change the first chunks of the queue, which the
// flusher may be writing.
func (o *Out) enqueue(c *buffer.Chunk) {
	if len(o.queue) <= max(o.owned, 1) {
		o.push(c.Shrink())
		return
	}
	o.queued += c.Len()
	o.queue = buffer.Enqueue(o.queue, c)
}

func (o *Out) push(c *buffer.Chunk) {
	o.queue = append(o.queue, c)
	o.queued += c.Len()
	if !o.running {
		o.running = true
		go o.flush()
	}
}
