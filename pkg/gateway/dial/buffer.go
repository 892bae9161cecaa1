// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"io"
	"os"
	"sync"
	"time"
)

// buffer is a pipe in memory with a limit and deadlines. One side writes, the other reads.
type buffer struct {
	mu     sync.Mutex
	change sync.Cond
	chunks [][]byte
	size   int
	limit  int
	end    error // what Read returns after all chunks
	gone   error // what Write returns

	readBy, writeBy deadline
}

type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func newBuffer(limit int) *buffer {
	b := &buffer{limit: limit}
	b.change.L = &b.mu
	return b
}

// Read returns bytes that were written, or the error that the buffer was closed with.
func (b *buffer) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		switch {
		case b.readBy.passed():
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		case len(b.chunks) > 0:
			n := copy(p, b.chunks[0])
			if b.chunks[0] = b.chunks[0][n:]; len(b.chunks[0]) == 0 {
				b.chunks[0] = nil
				b.chunks = b.chunks[1:]
			}
			b.size -= n
			b.change.Broadcast()
			return n, nil
		case b.end != nil:
			return 0, b.end
		}
		b.change.Wait()
	}
}

// take takes over all of p, which must not be changed afterwards, as soon as the buffer
// holds less than its limit.
func (b *buffer) take(p []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		switch {
		case b.gone != nil:
			return b.gone
		case b.writeBy.passed():
			return os.ErrDeadlineExceeded
		case b.size < b.limit:
			b.chunks = append(b.chunks, p)
			b.size += len(p)
			b.change.Broadcast()
			return nil
		}
		b.change.Wait()
	}
}

// setLimit changes the limit. What is in the buffer stays.
func (b *buffer) setLimit(limit int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = limit
	b.change.Broadcast()
}

// full reports whether take would block.
func (b *buffer) full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.size >= b.limit && b.gone == nil
}

// Write copies p into the buffer in parts.
func (b *buffer) Write(p []byte) (int, error) {
	done := 0
	for len(p) > 0 {
		part := p[:min(len(p), chunkSize)]
		if err := b.take(append([]byte(nil), part...)); err != nil {
			return done, err
		}
		done += len(part)
		p = p[len(part):]
	}
	return done, nil
}

// finish lets readers have what is in the buffer and then end, or io.EOF if that is nil.
// Writers get io.ErrClosedPipe.
func (b *buffer) finish(end error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if end == nil {
		end = io.EOF
	}
	if b.end == nil {
		b.end = end
	}
	if b.gone == nil {
		b.gone = io.ErrClosedPipe
	}
	b.change.Broadcast()
}

// discard drops what is in the buffer; both sides get err.
func (b *buffer) discard(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.chunks, b.size, b.end, b.gone = nil, 0, err, err
	b.change.Broadcast()
}

// setDeadline sets the deadline of one side.
func (b *buffer) setDeadline(d *deadline, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = at
	if left := time.Until(at); !at.IsZero() && left > 0 {
		d.timer = time.AfterFunc(left, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.change.Broadcast()
		})
	}
	b.change.Broadcast()
}
