// SPDX-License-Identifier: Apache-2.0

package link

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
)

// TestWindowGrowsWhenBlocked: the window of a stream whose sender waits for credit grows
// while its receiver keeps up, as far as the link's slack goes, and a stream that ends
// gives its slack back.
func TestWindowGrowsWhenBlocked(t *testing.T) {
	const window = 64 << 10
	e := newEnds(t, Config{Window: window, MaxWindow: 4 << 20})
	e.agent.minRTT.Store(1) // the line explains nothing
	whole := e.agent.slack
	s, a := e.open(t)
	st := a.Stream().(*Stream)
	size := func() (window, slack int) {
		e.agent.mu.Lock()
		defer e.agent.mu.Unlock()
		return st.window, e.agent.slack
	}
	sinktest.Eventually(t, "the window grows", func() bool {
		if !s.SendAll(make([]byte, 1<<20)) {
			t.Fatal("the sender found no room")
		}
		got, left := size()
		if left != whole-(got-window) {
			t.Fatalf("%d bytes of slack are left of %d, the window is %d", left, whole, got)
		}
		return got == window+whole
	})
	s.Stream().Reset("by the test", false)
	sinktest.Eventually(t, "the stream is over", func() bool { return e.agent.Streams() == 0 })
	if _, left := size(); left != whole {
		t.Errorf("%d bytes of slack have not come back", whole-left)
	}
}

// TestSlowReceiverShowsLife: of a receiver that passes on little the sender hears now and
// then, also while its window is to become smaller, so that it is not taken for one that
// is stuck.
func TestSlowReceiverShowsLife(t *testing.T) {
	const window = 64 << 10
	e := newEnds(t, Config{Window: window})
	s, a := e.open(t)
	a.SetSlow(true)
	st := a.Stream().(*Stream)
	if !s.SendAll(make([]byte, window)) {
		t.Fatal("the window is smaller than it was announced")
	}
	sinktest.Eventually(t, "all has come", func() bool { n, _, _, _ := a.State(); return n == window })
	step := func(shrink int, later time.Duration) (owed bool) {
		e.agent.mu.Lock()
		st.window += shrink - st.shrink
		st.shrink = shrink
		st.credited -= later
		e.agent.mu.Unlock()
		before := st.allowedNow()
		st.Consumed(100)
		return st.allowedNow() > before
	}
	if step(0, 0) {
		t.Error("there is credit for each byte")
	}
	if !step(0, creditAfter) {
		t.Error("there is no credit after a while")
	}
	if step(1<<20, 0) {
		t.Error("there is credit although the window is to become smaller")
	}
	if !step(1<<20, creditAfter) {
		t.Error("there is no credit after a while, as the window is to become smaller")
	}
}

// allowedNow is what the peer may still send, owed credit included.
func (st *Stream) allowedNow() int {
	st.l.mu.Lock()
	defer st.l.mu.Unlock()
	if st.creditQueued {
		return st.allowed + st.owed
	}
	return st.allowed
}

// TestWindowOfSlowReceiver: it does not grow, though the sender is blocked all the time.
func TestWindowOfSlowReceiver(t *testing.T) {
	const window, size = 64 << 10, 4 << 20
	e := newEnds(t, Config{Window: window, MaxWindow: 4 << 20})
	e.agent.minRTT.Store(1)
	s, a := e.open(t)
	a.SetSlow(true)
	sent := make(chan bool)
	go func() { sent <- s.SendAll(make([]byte, size)) }()
	passedOn := 0
	sinktest.Eventually(t, "all comes", func() bool {
		n, _, _, _ := a.State()
		for n-passedOn > window/2 { // it always holds a quarter and more
			a.Stream().Consumed(window / 4)
			passedOn += window / 4
		}
		return n == size
	})
	if !<-sent {
		t.Error("the sender found no room")
	}
	e.agent.mu.Lock()
	defer e.agent.mu.Unlock()
	if got := a.Stream().(*Stream).window; got != window {
		t.Errorf("the window is %d bytes, it was %d", got, window)
	}
}

// TestBlockedBehindData: BLOCKED does not overtake the data that has used up the window,
// and is said once for it.
func TestBlockedBehindData(t *testing.T) {
	near, _ := pair(t)
	l := New(near, 64<<10, Config{})
	l.writing = true // the test is the writer
	st := l.newStream(1, sinktest.NewSink(nil, false))
	st.SendAll([]*buffer.Chunk{buffer.From(make([]byte, 32<<10)), buffer.From(make([]byte, 32<<10))}, false)
	blocked := appendFrame(nil, typeBlocked, st.id, "")
	for range 2 {
		if st.Window() != 0 {
			t.Fatal("there is room beyond the credit")
		}
		if len(l.ctrl) > 0 {
			t.Fatalf("BLOCKED is to be sent while %d bytes wait", st.queued)
		}
	}
	var b batch
	if !l.fill(&b) || len(b.ctrl) > 0 || len(b.items) != 2 {
		t.Fatalf("the first batch has %q and %d frames of data", b.ctrl, len(b.items))
	}
	for _, it := range b.items {
		it.c.Release()
	}
	if !l.fill(&b) || string(b.ctrl) != string(blocked) {
		t.Fatalf("the second batch has %q, want %q", b.ctrl, blocked)
	}
	if st.Window(); l.fill(&b) {
		t.Fatalf("the third batch has %q", b.ctrl)
	}
}

// TestBlockedWithoutData: a peer that says BLOCKED with credit left gets none, which is
// reported.
func TestBlockedWithoutData(t *testing.T) {
	near, _ := pair(t)
	reported, firsts := 0, 0
	l := New(near, 1<<20, Config{OnViolation: func(_ string, first bool) {
		if reported++; first {
			firsts++
		}
	}})
	for id := range uint32(20) {
		st := l.newStream(id+1, sinktest.NewSink(nil, false))
		for range 4 {
			st.gotBlocked()
		}
		if st.window != l.cfg.Window || st.owed > 0 {
			t.Fatalf("the window is %d bytes, it was %d", st.window, l.cfg.Window)
		}
	}
	if l.cfg.Budget.left.Load() != l.cfg.Budget.whole {
		t.Error("the budget was used")
	}
	if reported != 20*4 || firsts != 1 {
		t.Errorf("it was reported %d times, %d of them as the first", reported, firsts)
	}
}

// TestBlockedMeetsCredit: the window grows as well if the credit that the sender waits for
// is under way when its BLOCKED comes.
func TestBlockedMeetsCredit(t *testing.T) {
	near, _ := pair(t)
	l := New(near, 1<<20, Config{})
	l.writing = true // the test is the writer
	st := l.newStream(1, sinktest.NewSink(nil, false))
	st.allowed, st.unconsumed, st.came = 0, st.window, st.window // all has come
	l.held = st.window
	st.Consumed(st.window)
	var b batch
	if !l.fill(&b) || st.allowed != st.window {
		t.Fatalf("there is credit for %d bytes", st.allowed)
	}
	for _, times := range []int{2, 2} { // and not a second time for the same bytes
		if st.gotBlocked(); st.window != times*l.cfg.Window {
			t.Fatalf("the window is %d bytes, want %d times %d", st.window, times, l.cfg.Window)
		}
	}
}
