package sock

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
)

// ErrClosed is returned for writes after the write half was closed.
var ErrClosed = errors.New("write half is closed")

// Out is the write half of a connection for callers that must not wait. What the
// socket does not take at once is queued and written by a goroutine that lives
// only while there is a queue.
type Out struct {
	nc  net.Conn
	raw syscall.RawConn

	// Written is called, without locks held, after n queued or direct bytes
	// went into the socket. Failed is called once when a write fails.
	Written func(n int)
	Failed  func(err error)
	// Ended is called, without locks held, when the connection has been closed
	// behind the queue, as Close and Cut ask for. Where that queue is given up, because a
	// write fails or by Discard, it is not called.
	Ended func()
	// Flushed is called by the flusher after each write, without locks held.
	Flushed func()
	// Took, if set, is told for how long each write waited for the socket: 0 if that
	// took all at once. It must not call back.
	Took func(d time.Duration)

	mu      sync.Mutex
	queue   []*buf.Chunk
	queued  int  // bytes in queue
	running bool // the flusher exists
	closing bool // CloseWrite or Close once the queue is empty
	how     ending
	err     error

	// For the direct attempt; guarded by mu.
	try    [][]byte
	wrote  int
	werr   error
	tryFn  func(fd uintptr) bool
	single [1][]byte
}

// NewOut returns the write half of nc. Set Written and Failed before writing.
func NewOut(nc net.Conn) *Out {
	o := &Out{nc: nc, raw: rawOf(nc)}
	o.tryFn = o.tryWrite
	return o
}

// Buffered is the number of bytes that wait for the socket.
func (o *Out) Buffered() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queued
}

// WriteChunk writes or queues the chunk, which it owns from then on.
func (o *Out) WriteChunk(c *buf.Chunk) error {
	o.mu.Lock()
	if err := o.usable(); err != nil {
		o.mu.Unlock()
		c.Release()
		return err
	}
	o.single[0] = c.Bytes()
	n, err := o.direct(o.single[:])
	o.single[0] = nil
	c.Consume(n)
	if err == nil && c.Len() > 0 {
		o.enqueue(c)
	} else {
		o.took(0)
		c.Release()
	}
	o.mu.Unlock()
	return o.report(n, err)
}

// Write writes or queues the slices in order as one unit. It copies what it
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

// direct tries to write at once. With a queue, order forbids that; without a raw
// socket, a write could wait.
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

// writev writes once, or more often where a write is interrupted.
func writev(fd int, bufs [][]byte) (n int, err error) {
	for {
		if len(bufs) == 1 {
			n, err = unix.Write(fd, bufs[0])
		} else {
			n, err = unix.Writev(fd, bufs)
		}
		if err == unix.EINTR {
			continue
		}
		return max(n, 0), err
	}
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
		if last := len(o.queue) - 1; last >= 1 && len(o.queue[last].Free()) > 0 {
			n := o.queue[last].Append(b)
			o.queued += n
			b = b[n:]
			continue
		}
		c := buf.From(b[:min(len(b), buf.MaxPayload)])
		b = b[c.Len():]
		o.push(c)
	}
}

// enqueue queues a chunk. The flusher may be writing the first one of the queue,
// which is left alone.
func (o *Out) enqueue(c *buf.Chunk) {
	if len(o.queue) < 2 {
		o.push(c.Shrink())
		return
	}
	o.queued += c.Len()
	o.queue = buf.Enqueue(o.queue, c)
}

func (o *Out) push(c *buf.Chunk) {
	o.queue = append(o.queue, c)
	o.queued += c.Len()
	if !o.running {
		o.running = true
		go o.flush()
	}
}

// fail empties the queue; mu is held.
func (o *Out) fail(err error) {
	if o.err == nil {
		o.err = err
	}
	for i, c := range o.queue {
		if i > 0 || !o.running { // the flusher owns the first one
			c.Release()
		}
	}
	if o.running && len(o.queue) > 0 {
		o.queue = o.queue[:1]
	} else {
		o.queue = nil
	}
	o.queued = 0
}

// flush writes the queue and ends with it.
func (o *Out) flush() {
	for {
		o.mu.Lock()
		if len(o.queue) == 0 || o.err != nil {
			o.stopFlushing()
			return
		}
		c := o.queue[0]
		o.mu.Unlock()
		start := time.Now()
		n, err := o.nc.Write(c.Bytes())
		o.took(time.Since(start))
		o.mu.Lock()
		o.queue[0] = nil
		o.queue = o.queue[1:]
		if o.err == nil {
			o.queued -= c.Len()
		}
		c.Release()
		if err != nil {
			already := o.err != nil
			o.running = false
			o.fail(err)
			o.mu.Unlock()
			if already {
				err = nil
			}
			_ = o.report(n, err)
			return
		}
		o.mu.Unlock()
		_ = o.report(n, nil)
		if o.Flushed != nil {
			o.Flushed()
		}
	}
}

// stopFlushing ends the flusher; mu is held and released.
func (o *Out) stopFlushing() {
	o.running = false
	for _, c := range o.queue {
		c.Release()
	}
	o.queue = nil
	closing, how := o.closing && o.err == nil, o.how
	o.mu.Unlock()
	if closing {
		o.end(how)
	}
}
