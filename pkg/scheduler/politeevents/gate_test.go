// SPDX-License-Identifier: Apache-2.0

package politeevents

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const limit = 10 * time.Second

// pass starts n events and returns how many have been written.
func pass(t *testing.T, g *Gate, n int) *atomic.Int64 {
	var written atomic.Int64
	for range n {
		go func() {
			if err := g.Pass(t.Context(), func() { written.Add(1) }); err != nil {
				t.Error(err)
			}
		}()
	}
	synctest.Wait()
	return &written
}

func wantWritten(t *testing.T, written *atomic.Int64, want int64, when string) {
	t.Helper()
	synctest.Wait()
	if got := written.Load(); got != want {
		t.Errorf("%s: %d events are written, want %d", when, got, want)
	}
}

func TestEventsWaitForBindings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(limit)
		wantWritten(t, pass(t, g, 3), 3, "no binding")
		first, second := g.Binding(), g.Binding()
		written := pass(t, g, 3*writers)
		wantWritten(t, written, 0, "two bindings")
		if got := g.Waiting(); got != 3*writers {
			t.Errorf("%d events wait, want %d", got, 3*writers)
		}
		first()
		wantWritten(t, written, 0, "one binding")
		second()
		wantWritten(t, written, 3*writers, "bindings have ended")
		if got := g.Waiting(); got != 0 {
			t.Errorf("%d events wait after all were written", got)
		}
	})
}

func TestEventsWaitNoLongerThanTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(limit)
		defer g.Binding()()
		written := pass(t, g, 3*writers)
		time.Sleep(limit - time.Millisecond)
		wantWritten(t, written, 0, "before the limit")
		time.Sleep(2 * time.Millisecond)
		wantWritten(t, written, 3*writers, "after the limit")
		wantWritten(t, pass(t, NewGate(0), 1), 1, "a limit of 0")
	})
}

// TestWaitingIsBounded: beyond the limit of waiting events, each new event lets one out.
func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(time.Hour)
		defer g.Open()
		ended := g.Binding()
		written := pass(t, g, mostWaiting)
		wantWritten(t, written, 0, "as many as may wait")
		more := pass(t, g, 100)
		if got := written.Load() + more.Load(); got < 100 || got > 100+writers {
			t.Errorf("%d events are written of %d, want those that are too many", got, mostWaiting+100)
		}
		ended()
		wantWritten(t, more, 100, "no binding")
	})
}

// TestWriteIsOneOfFew: events that may go out do so a few at a time, and each looks for bindings again.
func TestWriteIsOneOfFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(time.Hour)
		var mu sync.Mutex
		var writing, most int
		count := func(by int) {
			mu.Lock()
			defer mu.Unlock()
			writing += by
			most = max(most, writing)
		}
		for range 5 * writers {
			go func() {
				_ = g.Pass(t.Context(), func() {
					count(1)
					time.Sleep(time.Second)
					count(-1)
				})
			}()
		}
		time.Sleep(1500 * time.Millisecond)
		ended := g.Binding()
		time.Sleep(time.Minute)
		if got := g.Waiting(); got != 3*writers {
			t.Errorf("%d events wait for the binding that began later, want %d", got, 3*writers)
		}
		ended()
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if most != writers {
			t.Errorf("%d events were written at a time, want %d", most, writers)
		}
	})
}

func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(time.Hour)
		defer g.Binding()()
		written := pass(t, g, 100)
		start := time.Now()
		g.Flush(time.Minute)
		wantWritten(t, written, 100, "flushed")
		if took := time.Since(start); took > time.Second {
			t.Errorf("took %v", took)
		}
		go func() { _ = g.Pass(t.Context(), func() { time.Sleep(time.Minute) }) }()
		synctest.Wait()
		start = time.Now()
		g.Flush(2 * time.Second)
		if took := time.Since(start); took < 2*time.Second || took > 3*time.Second {
			t.Errorf("with a write that hangs: took %v, want 2 s", took)
		}
		time.Sleep(time.Minute)
	})
}

func TestEndedContextWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(time.Hour)
		defer g.Binding()()
		ctx, cancel := context.WithCancel(t.Context())
		results := make(chan error, 2*writers)
		for range cap(results) {
			go func() { results <- g.Pass(ctx, func() { t.Error("written") }) }()
		}
		synctest.Wait()
		cancel()
		for range cap(results) {
			if err := <-results; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		}
		if got := g.Waiting(); got != 0 {
			t.Errorf("%d events wait", got)
		}
	})
}
