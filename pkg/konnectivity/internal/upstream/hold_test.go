// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/upstream"
)

// download is a receiver that is slower than its source, in a time that passes only while
// all wait: that of the receiver, and that for which the stream is kept shut.
type download struct {
	*pair
	resets atomic.Int32
	taken  int
	gone   chan struct{} // it has all, or was reset
}

const downloadSize = 64 << 20

// startDownload takes 256 KiB behind each pause.
func startDownload(t *testing.T, pause time.Duration) *download {
	return startTransfer(t, pause, false)
}

// startTransfer does so at the server's end or, for an upload, at the agent's.
func startTransfer(t *testing.T, pause time.Duration, atAgent bool) *download {
	d := &download{gone: make(chan struct{})}
	near, far := net.Pipe()
	counts := upstream.Config{OnOverflow: func() { d.resets.Add(1) }}
	d.pair = newPairOn(t, near, far, counts, counts)
	d.slow = atAgent
	sink, source := d.open(t, true)
	d.slow = false
	if atAgent {
		sink, source = source, sink
	}
	d.wg.Go(func() { send(t, source, downloadSize, 0) })
	d.wg.Go(func() {
		defer close(d.gone)
		d.taken = take(sink, downloadSize, 256<<10, pause)
	})
	return d
}

// take reads so many bytes, a piece behind each pause, and returns how many there were.
func take(sink *sinktest.Sink, size, piece int, pause time.Duration) (taken int) {
	for taken < size {
		time.Sleep(pause)
		got, _, _, err := sink.State()
		if err != nil {
			break
		}
		n := min(piece, got-taken)
		taken += n
		sink.Stream().Consumed(n)
	}
	return taken
}

func (d *download) over() bool {
	select {
	case <-d.gone:
		return true
	default:
		return false
	}
}

// wait fails unless the receiver got all, or was reset.
func (d *download) wait(t *testing.T, kept bool) {
	t.Helper()
	<-d.gone
	if n := d.resets.Load(); kept != (d.taken == downloadSize) || kept != (n == 0) {
		t.Errorf("the receiver took %d of %d bytes, and %d connections were reset", d.taken, downloadSize, n)
	}
}

// TestSlowerThanItsSource: a receiver that is slower than its source gets all, if no other
// connection has much to do, and one that takes nothing is reset. What comes by itself for
// another connection is not kept for long.
func TestSlowerThanItsSource(t *testing.T) {
	for name, c := range map[string]struct {
		pause time.Duration
		kept  bool
	}{
		"17 MB/s":  {15 * time.Millisecond, true},
		"1.3 MB/s": {200 * time.Millisecond, true},
		"stalled":  {time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := startDownload(t, c.pause)
				other, far := d.open(t, false)
				longest := time.Duration(0)
				for said := 1; !d.over(); said++ {
					start := time.Now()
					send(t, far, 1, 0)
					for now := 0; now < said; now, _, _, _ = other.State() {
						time.Sleep(time.Millisecond)
					}
					longest = max(longest, time.Since(start))
					time.Sleep(10 * time.Second)
				}
				d.wait(t, c.kept)
				if t.Logf("a byte that came by itself took %v at most", longest); longest > time.Second {
					t.Errorf("another connection waited for %v", longest)
				}
			})
		})
	}
}

// TestBusyBesideSlow: connections with something to do are not held up by one whose receiver
// is slow. It gets all where they do a little, and is reset where they do a lot.
func TestBusyBesideSlow(t *testing.T) {
	for name, c := range map[string]struct {
		every time.Duration
		kept  bool
	}{
		"keystrokes":  {100 * time.Millisecond, true},
		"many a time": {time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := startDownload(t, 40*time.Millisecond)
				silent, _ := d.open(t, false)
				near, far := d.open(t, false)
				longest := time.Duration(0)
				for asked := 1; !d.over(); asked++ {
					if asked%10 == 0 {
						send(t, silent, 1, 0) // is not answered
					}
					start := time.Now()
					send(t, near, 1, 0)
					await(far, asked)
					send(t, far, 1, 0)
					await(near, asked)
					longest = max(longest, time.Since(start))
					time.Sleep(c.every)
				}
				d.wait(t, c.kept)
				if longest > 10*time.Millisecond {
					t.Errorf("an answer took %v at most", longest)
				}
			})
		})
	}
}

// TestDialBesideSlow: nor is a new connection, with a request and an answer in two parts. An
// agent does not know that it waits.
func TestDialBesideSlow(t *testing.T) {
	for name, atAgent := range map[string]bool{"download": false, "upload": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := startTransfer(t, 40*time.Millisecond, atAgent)
				longest := time.Duration(0)
				for !d.over() {
					start := time.Now()
					near, far := d.open(t, false)
					send(t, near, 1, 0)
					await(far, 1)
					send(t, far, 1, 0)
					await(near, 1)
					send(t, far, 1, 0)
					await(near, 2)
					longest = max(longest, time.Since(start))
					near.Stream().Close()
					time.Sleep(250 * time.Millisecond)
				}
				d.wait(t, true)
				if t.Logf("%v at most", longest); longest > 250*time.Millisecond {
					t.Errorf("a dial, a request and its answer took %v at most", longest)
				}
			})
		})
	}
}

// TestBulkBesideSlow: nor is one whose receiver takes 320 MB/s. The slow one cannot get all
// next to it.
func TestBulkBesideSlow(t *testing.T) {
	for name, pause := range map[string]time.Duration{"slow": 30 * time.Millisecond, "stalled": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := startDownload(t, pause)
				near, far := d.open(t, true)
				time.Sleep(time.Second) // the window is shut
				const size = 64 << 20
				start := time.Now()
				d.wg.Go(func() { send(t, far, size, 0) })
				if n := take(near, size, 64<<10, 200*time.Microsecond); n != size {
					t.Errorf("%d of %d bytes came", n, size)
				}
				took := time.Since(start)
				d.wait(t, false)
				if t.Logf("%d MiB took %v", size>>20, took); took > 550*time.Millisecond {
					t.Errorf("%d MiB took %v beside it", size>>20, took)
				}
			})
		})
	}
}

func await(s *sinktest.Sink, n int) {
	for now := 0; now < n; now, _, _, _ = s.State() {
		time.Sleep(100 * time.Microsecond)
	}
}
