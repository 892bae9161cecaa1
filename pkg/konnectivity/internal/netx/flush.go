// SPDX-License-Identifier: Apache-2.0

package netx

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
)

// fail empties the queue; mu is held.
func (o *Out) fail(err error) {
	if o.err == nil {
		o.err = err
	}
	buffer.Release(o.queue[o.owned:]) // the flusher owns those before
	o.queue = o.queue[:o.owned]
	o.queued = 0
}

// flush writes the queue and ends with it.
func (o *Out) flush() {
	f := newFlusher(o)
	for {
		o.mu.Lock()
		if len(o.queue) == 0 || o.err != nil {
			o.stopFlushing()
			return
		}
		o.owned = min(len(o.queue), maxBurst)
		if o.raw == nil {
			o.owned = 1
		}
		cs := o.queue[:o.owned:o.owned]
		o.mu.Unlock()
		start := time.Now()
		n, err := f.write(cs)
		o.took(time.Since(start))
		o.mu.Lock()
		o.wroteLocked(n)
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

// wroteLocked takes n bytes off the queue and its chunks back from the flusher.
func (o *Out) wroteLocked(n int) {
	if o.err == nil {
		o.queued -= n
	}
	for o.owned > 0 {
		c := o.queue[0]
		took := min(n, c.Len())
		n -= took
		if c.Consume(took); c.Len() > 0 && o.err == nil {
			break
		}
		c.Release()
		o.queue[0] = nil
		o.queue = o.queue[1:]
		o.owned--
	}
	o.owned = 0
}

// flusher writes some chunks of a queue, waiting until the socket takes a part of them.
type flusher struct {
	o   *Out
	iov [][]byte
	few [maxBurst][]byte
	n   int
	err error
	try func(fd uintptr) bool // made once
}

func newFlusher(o *Out) *flusher {
	f := &flusher{o: o}
	f.try = func(fd uintptr) bool {
		f.n, f.err = writev(int(fd), f.iov)
		return !errors.Is(f.err, unix.EAGAIN)
	}
	return f
}

// write returns how many bytes went; with an error, too, some may have.
func (f *flusher) write(cs []*buffer.Chunk) (int, error) {
	if f.o.raw == nil {
		return f.o.nc.Write(cs[0].Bytes())
	}
	f.iov, f.n, f.err = f.few[:0], 0, nil
	for _, c := range cs {
		f.iov = append(f.iov, c.Bytes())
	}
	defer clear(f.few[:])
	if err := f.o.raw.Write(f.try); err != nil {
		return 0, err
	}
	return f.n, f.err
}

// stopFlushing ends the flusher; mu is held and released.
func (o *Out) stopFlushing() {
	o.running = false
	buffer.Release(o.queue)
	o.queue = nil
	closing, how := o.closing && o.err == nil, o.how
	o.mu.Unlock()
	if closing {
		o.end(how)
	}
}
