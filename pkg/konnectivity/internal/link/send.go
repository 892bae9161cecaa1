// SPDX-License-Identifier: Apache-2.0

package link

import (
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
)

// flowQueue is a queue of streams with something to send.
type flowQueue struct{ first, last *Stream }

func (q *flowQueue) push(st *Stream) {
	st.next = nil
	if q.last == nil {
		q.first = st
	} else {
		q.last.next = st
	}
	q.last = st
}

func (q *flowQueue) pop() *Stream {
	st := q.first
	q.first = st.next
	if q.first == nil {
		q.last = nil
	}
	st.next = nil
	return st
}

const (
	// quantum is the number of bytes that a stream may send before it has to queue.
	quantum = buffer.MaxSize
	// turn is the number of bytes that a queued stream may send per round: as many in
	// a row as its receiver passes on at a time.
	turn = maxBatch
)

// maxBatch is the number of bytes taken from the queues at a time.
const maxBatch = 4 * buffer.MaxSize

// inlineBatches is how many batches a goroutine writes on behalf of others
// before it hands over to the writer.
const inlineBatches = 2

// schedule queues a stream. A stream that had nothing queued goes to the fresh queue,
// which is served first, so that a keystroke overtakes bulk data. It can send one
// quantum that way before it has to queue (deficit round-robin with sparse flows
// first, as in RFC 8290). It gets that quantum once per round of the old queue:
// otherwise a stream that always sends all it has would always be first. A stream that
// had less to send than its turn allowed gets the rest of the turn when it returns,
// after the fresh streams.
func (l *Link) schedule(st *Stream) {
	if st.listed {
		return
	}
	st.listed = true
	if st.round != l.round || l.old.first == nil {
		st.round, st.deficit = l.round, min(quantum, st.deficit+quantum)
	}
	switch {
	case st.deficit > quantum:
		l.rest.push(st)
	case st.deficit > 0:
		l.fresh.push(st)
	default:
		l.line(st)
	}
}

// line puts a stream at the end of the old queue with one more turn.
func (l *Link) line(st *Stream) {
	st.deficit += turn
	st.round = l.round
	l.old.push(st)
	if l.mark == nil {
		l.mark = st
	}
}

// popFrom takes the first stream from a queue. The round of the old queue ends with
// the stream that was last when the round began.
func (l *Link) popFrom(q *flowQueue) *Stream {
	st := q.pop()
	if st == l.mark {
		l.round++
		l.mark = l.old.last
	}
	return st
}

// kickLocked makes the writer drain the queues unless a goroutine is doing so.
func (l *Link) kickLocked() {
	if l.writing || l.err != nil {
		return
	}
	l.writing = true
	l.signal()
}

func (l *Link) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// writer drains the queues when no sender does it.
func (l *Link) writer() {
	for {
		select {
		case <-l.done:
			return
		case <-l.wake:
			l.drain(false)
		}
	}
}

// item is one frame of a batch.
type item struct {
	st  *Stream
	c   *buffer.Chunk
	typ byte
}

// batch is a set of frames that is taken from the queues under the lock and written
// without it.
type batch struct {
	ctrl  []byte
	items []item
	wake  []*Stream
}

// drain writes until the queues are empty. The caller has set l.writing. With inline,
// a sender's goroutine writes only a limited number of batches on behalf of others.
func (l *Link) drain(inline bool) {
	b := &l.out
	for n := 0; ; n++ {
		if inline && n == inlineBatches {
			l.signal() // it now belongs to the writer
			return
		}
		l.mu.Lock()
		if !l.fill(b) {
			l.writing = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		for _, st := range b.wake {
			st.r.Writable()
		}
		err := l.write(b)
		if err != nil {
			_ = l.fail(err) // Run returns it
			return
		}
	}
}

// fill takes the next batch. It returns false when there is nothing to send.
func (l *Link) fill(b *batch) bool {
	clear(b.items)
	clear(b.wake)
	b.items, b.wake = b.items[:0], b.wake[:0]
	b.ctrl, l.ctrl = l.ctrl, b.ctrl[:0]
	for _, st := range l.credits {
		st.creditQueued = false
		if !st.state.remoteEnded() && st.owed > 0 {
			b.ctrl = appendCredit(b.ctrl, st.id, st.owed)
			st.allowed += st.owed
			st.owed = 0
		}
	}
	l.credits = l.credits[:0]
	for total := 0; total < maxBatch; {
		st := l.pick()
		if st == nil {
			break
		}
		total += l.takeFrom(st, b, maxBatch-total)
	}
	return len(b.ctrl) > 0 || len(b.items) > 0
}

// pick returns the next stream that has something to send.
func (l *Link) pick() *Stream {
	for {
		q := l.nextQueue()
		if q == nil {
			return nil
		}
		st := q.first
		if st.state == stateClosed || (len(st.queue) == 0 && (st.end == endNone || st.state.localEnded())) {
			l.popFrom(q).listed = false
			continue
		}
		if st.deficit <= 0 {
			l.line(l.popFrom(q))
			continue
		}
		return st
	}
}

// nextQueue returns the first queue, in order of precedence, that is not empty.
func (l *Link) nextQueue() *flowQueue {
	for _, q := range [...]*flowQueue{&l.fresh, &l.rest, &l.old} {
		if q.first != nil {
			return q
		}
	}
	return nil
}

// takeFrom moves frames of the stream to the batch while its deficit lasts.
func (l *Link) takeFrom(st *Stream, b *batch, room int) (total int) {
	for len(st.queue) > 0 && st.deficit > 0 && room > total {
		c := st.queue[0]
		st.queue[0] = nil
		st.queue = st.queue[1:]
		st.deficit -= c.Len()
		st.queued -= c.Len()
		total += c.Len()
		b.items = append(b.items, item{st, c, typeData})
	}
	if len(st.queue) == 0 {
		st.queue = nil
		if st.end != endNone && !st.state.localEnded() {
			b.items = append(b.items, item{st, buffer.From([]byte(clip(st.reason))), endFrame[st.end]})
			if st.end == endReset {
				st.killLocked()
			} else {
				st.localEndedLocked()
			}
		}
	}
	switch {
	case !st.waiting:
	case st.windowLocked() > 0:
		st.waiting = false
		b.wake = append(b.wake, st)
	case st.queued == 0:
		st.blockedLocked() // sent in the next batch, after the data of this one
	}
	return total + 1
}

// smallFrame is the size in bytes up to which frames are copied together, so that not
// each of them becomes a TLS record of its own.
const smallFrame = 4096

// write sends one batch.
func (l *Link) write(b *batch) error {
	if l.bc != nil {
		l.bc.begin()
	}
	err := l.writeItems(b)
	if l.bc != nil {
		if e := l.bc.end(); err == nil {
			err = e
		}
	}
	return err
}

func (l *Link) writeItems(b *batch) (err error) {
	join := b.ctrl // control frames and small frames behind them
	flush := func() {
		if len(join) > 0 && err == nil {
			_, err = l.nc.Write(join)
		}
		join = join[:0]
	}
	for _, it := range b.items {
		n := it.c.Len()
		frame := it.c.WithHeader(headerLen)
		putHeader(frame, it.typ, n, it.st.id)
		l.sent.count(it.typ)
		if len(frame) <= smallFrame {
			if len(join)+len(frame) > maxRecord {
				flush()
			}
			join = append(join, frame...)
		} else {
			flush()
			if err == nil {
				_, err = l.nc.Write(frame)
			}
		}
		it.c.Release()
	}
	flush()
	if b.ctrl = join; cap(join) > maxControl {
		b.ctrl = nil
	}
	return err
}

// maxRecord is the payload of a full TLS record in bytes.
const maxRecord = 16384
