// SPDX-License-Identifier: Apache-2.0

package link

import (
	"net"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
)

// flows is a link that does not run: the test takes its batches.
type flows struct {
	t    *testing.T
	l    *Link
	sent map[*Stream]int
}

func newFlows(t *testing.T) *flows {
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	l := New(near, maxCredit, Config{})
	l.writing = true // no other goroutine takes batches
	return &flows{t, l, map[*Stream]int{}}
}

func (f *flows) stream() *Stream {
	f.l.nextID++
	return f.l.newStream(f.l.nextID, sinktest.NewSink(nil, false))
}

// send queues n bytes.
func (f *flows) send(st *Stream, n int) {
	for n > 0 {
		c := buffer.Get(buffer.MaxPayload)
		c.Extend(min(n, buffer.MaxPayload))
		n -= c.Len()
		st.Send(c, false)
	}
}

// batch takes one batch and returns the streams in the order of their first frames.
func (f *flows) batch() (order []*Stream) {
	var b batch
	f.l.mu.Lock()
	f.l.fill(&b)
	f.l.mu.Unlock()
	seen := map[*Stream]bool{}
	for _, it := range b.items {
		f.sent[it.st] += it.c.Len()
		if it.c.Release(); !seen[it.st] {
			seen[it.st] = true
			order = append(order, it.st)
		}
	}
	return order
}

// TestDrainers checks streams that send everything they have in each batch and return for
// the next one. They get no more than streams that always have data left, and no less than
// half of it. The latter get whole turns, one after the other.
func TestDrainers(t *testing.T) {
	f := newFlows(t)
	var bulk, drain []*Stream
	for range 4 {
		bulk, drain = append(bulk, f.stream()), append(drain, f.stream())
	}
	for range 200 {
		for _, st := range bulk {
			for st.queued < maxQueued {
				f.send(st, buffer.MaxPayload)
			}
		}
		for _, st := range drain {
			if st.queued == 0 {
				f.send(st, buffer.MaxPayload)
			}
		}
		f.batch()
	}
	share := func(all []*Stream) (least, most int) {
		least = f.sent[all[0]]
		for _, st := range all {
			least, most = min(least, f.sent[st]), max(most, f.sent[st])
		}
		if most > least*5/4 {
			t.Errorf("shares of equals from %d to %d bytes", least, most)
		}
		return least, most
	}
	least, most := share(bulk)
	if few, many := share(drain); many > least || few < most/2 {
		t.Errorf("%d to %d bytes, beside %d to %d of those that always have something left", few, many, least, most)
	}
}

// TestKeystrokesGoFirst checks that a stream with little to send is first in each batch,
// however much the other streams have to send, and even though it returns all the time.
func TestKeystrokesGoFirst(t *testing.T) {
	f := newFlows(t)
	keys := f.stream()
	var bulk []*Stream
	for range 16 {
		bulk = append(bulk, f.stream())
	}
	for i := range 100 {
		for _, st := range bulk {
			for st.queued < maxQueued {
				f.send(st, buffer.MaxPayload)
			}
		}
		if i < 10 {
			f.batch() // the others have been sending for a while
			continue
		}
		f.send(keys, 64)
		if order := f.batch(); order[0] != keys {
			t.Fatalf("in batch %d the keystroke was not first", i)
		}
	}
}

// TestStreamsEndInLine checks that streams that are reset or end while they are queued leave
// the queues in order.
func TestStreamsEndInLine(t *testing.T) {
	f := newFlows(t)
	var all []*Stream
	for range 8 {
		st := f.stream()
		f.send(st, 4*buffer.MaxPayload)
		all = append(all, st)
	}
	f.batch()
	for i, st := range all {
		if i%2 == 0 {
			st.Reset("gone", false)
		} else {
			st.CloseWrite()
		}
	}
	for range 100 {
		f.batch()
	}
	for i, st := range all {
		if want := 4 * buffer.MaxPayload; i%2 == 1 && (f.sent[st] != want || st.state != stateHalfClosedLocal) {
			t.Errorf("stream %d: %d of %d bytes, state %d", i, f.sent[st], want, st.state)
		}
	}
	if f.l.fresh.first != nil || f.l.old.first != nil {
		t.Error("the queues are not empty")
	}
}
