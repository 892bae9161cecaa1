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
	owned   int  // chunks at the head of the queue that the flusher is writing
	queued  int  // bytes in queue
	running bool // the flusher exists
	closing bool // CloseWrite or Close once the queue is empty
	how     ending
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

// Buffered is the number of bytes that wait for the socket.
func (o *Out) Buffered() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queued
}

// WriteChunks writes or queues the chunks in order, which it owns from then on. The slice
// stays the caller's.
func (o *Out) WriteChunks(cs []*buf.Chunk) error {
	o.mu.Lock()
	if err := o.usable(); err != nil {
		o.mu.Unlock()
		buf.Release(cs)
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

// maxGather is from how many chunks one system call writes at most. Linux takes 1,024.
const maxGather = 64

// gather returns what the first chunks hold for one system call, until the next call; mu
// is held.
func (o *Out) gather(cs []*buf.Chunk) [][]byte {
	o.iov = o.iov[:0]
	for _, c := range cs[:min(len(cs), maxGather)] {
		o.iov = append(o.iov, c.Bytes())
	}
	return o.iov
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
		c := buf.From(b[:min(len(b), buf.MaxPayload)])
		b = b[c.Len():]
		o.push(c)
	}
}

// enqueue queues a chunk. The flusher may be writing the first ones of the queue,
// which are left alone.
func (o *Out) enqueue(c *buf.Chunk) {
	if len(o.queue) <= max(o.owned, 1) {
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
