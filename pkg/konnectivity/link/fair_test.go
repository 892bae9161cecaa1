package link

import (
	"net"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel/tunneltest"
)

// flows is a link that nobody runs: the test takes its batches.
type flows struct {
	t    *testing.T
	l    *Link
	sent map[*Stream]int
}

func newFlows(t *testing.T) *flows {
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	l := New(near, maxCredit, Config{})
	l.writing = true // nobody else takes batches
	return &flows{t, l, map[*Stream]int{}}
}

func (f *flows) stream() *Stream {
	f.l.nextID++
	return f.l.newStream(f.l.nextID, tunneltest.NewSink(nil, false))
}

// send queues n bytes.
func (f *flows) send(st *Stream, n int) {
	for n > 0 {
		c := buf.Get(buf.MaxPayload)
		c.Extend(min(n, buf.MaxPayload))
		n -= c.Len()
		st.Send(c, false)
	}
}

// batch takes one, and returns the streams in the order of their first frames.
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

// TestDrainers: streams that send all they have in each batch, and come back for the next
// one, get no more than those that always have something left, and not less than half of it:
// these have whole turns, one after the other.
func TestDrainers(t *testing.T) {
	f := newFlows(t)
	var bulk, drain []*Stream
	for range 4 {
		bulk, drain = append(bulk, f.stream()), append(drain, f.stream())
	}
	for range 200 {
		for _, st := range bulk {
			for st.queued < maxQueued {
				f.send(st, buf.MaxPayload)
			}
		}
		for _, st := range drain {
			if st.queued == 0 {
				f.send(st, buf.MaxPayload)
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

// TestKeystrokesGoFirst: a stream with little to send is first in each batch,
// however much the others have and though it comes back all the time.
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
				f.send(st, buf.MaxPayload)
			}
		}
		if i < 10 {
			f.batch() // the others have been there for a while
			continue
		}
		f.send(keys, 64)
		if order := f.batch(); order[0] != keys {
			t.Fatalf("in batch %d the keystroke was not first", i)
		}
	}
}

// TestStreamsEndInLine: streams that are reset or end while they are in the queues
// leave these in order.
func TestStreamsEndInLine(t *testing.T) {
	f := newFlows(t)
	var all []*Stream
	for range 8 {
		st := f.stream()
		f.send(st, 4*buf.MaxPayload)
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
		if want := 4 * buf.MaxPayload; i%2 == 1 && (f.sent[st] != want || !st.sentEnd) {
			t.Errorf("stream %d: %d of %d bytes, end sent: %v", i, f.sent[st], want, st.sentEnd)
		}
	}
	if f.l.fresh.first != nil || f.l.old.first != nil {
		t.Error("the queues are not empty")
	}
}
