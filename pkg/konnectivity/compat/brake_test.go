package compat_test

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/compat"
)

// TestSlowerThanItsSource: a receiver that is slower than its source, but takes 3 of
// 16 MiB within the time for which the stream may wait, gets all, and another connection
// goes on meanwhile. One that is slower than that is reset.
func TestSlowerThanItsSource(t *testing.T) {
	for name, c := range map[string]struct {
		pause time.Duration // behind each of 256 KiB
		kept  bool
	}{
		"fast enough": {15 * time.Millisecond, true},
		"too slow":    {30 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // time is the receiver's alone
				slowReceiver(t, c.pause, c.kept)
			})
		})
	}
}

func slowReceiver(t *testing.T, pause time.Duration, kept bool) {
	const size, piece = 64 << 20, 256 << 10
	var resets atomic.Int32
	near, far := net.Pipe()
	p := newPairOn(t, near, far, compat.Config{OnOverflow: func() { resets.Add(1) }}, compat.Config{})
	steady, source := p.open(t, true)
	other, echo := p.open(t, false)
	p.wg.Go(func() { send(t, source, size, 0) })
	taken, said, longest := 0, 0, time.Duration(0)
	take := func() bool {
		time.Sleep(pause)
		got, _, _, err := steady.State()
		n := min(piece, got-taken)
		taken += n
		steady.Stream().Consumed(n)
		return err == nil && taken < size
	}
	for take() {
		if taken <= said<<20 {
			continue
		}
		start := time.Now()
		send(t, echo, 1, 0)
		said++
		for now := 0; now < said && take(); now, _, _, _ = other.State() {
			// it comes behind what the source has queued
		}
		longest = max(longest, time.Since(start))
	}
	if n := resets.Load(); kept != (taken == size) || kept != (n == 0) {
		t.Errorf("the receiver took %d of %d bytes, and %d connections were reset", taken, size, n)
	}
	t.Logf("a byte of the other connection took %v at most", longest)
	if longest > time.Second {
		t.Errorf("another connection waited for %v", longest)
	}
}
