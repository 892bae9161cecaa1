// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
)

// mustDialLeave is MustDial for connections that stall. The gRPC client takes 10 s to
// close a stalled connection, and the test does not wait for that.
func mustDialLeave(t *testing.T, d Dialer, addr string) net.Conn {
	t.Helper()
	c, err := d(context.Background(), addr)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { leaving.Go(func() { _ = c.Close() }) })
	return c
}

// leaving are connections that are being closed.
var leaving sync.WaitGroup

// stallClient has a target send to a client that does not read.
func stallClient(t *testing.T, p Pair) {
	source := Target(t, endless)
	for range 10 {
		c := mustDialLeave(t, p.Dial, source)
		_, _ = c.Write([]byte{1})
	}
}

// Settled returns the bytes in all queues once they have stayed the same for a while.
func Settled(t testing.TB) int64 {
	t.Helper()
	last, since := buffer.InUse(), time.Now()
	Eventually(t, Patience, "the queues stand still", func() bool {
		if now := buffer.InUse(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 200*time.Millisecond
	})
	return last
}

// endless waits for the first byte from the other side and then sends until that fails.
func endless(c net.Conn) {
	_, _ = io.ReadFull(c, make([]byte, 1))
	for b := make([]byte, 64<<10); ; {
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

// stallTarget has clients send to a target that does not read.
func stallTarget(t *testing.T, p Pair) {
	stuck := make(chan struct{})
	sink := Target(t, func(net.Conn) { <-stuck })
	t.Cleanup(func() { close(stuck) })
	for range 10 {
		s := mustDialLeave(t, p.Dial, sink)
		go func() {
			for b := make([]byte, 64<<10); ; {
				if _, err := s.Write(b); err != nil {
					return
				}
			}
		}()
	}
}

// isolation checks that stalled connections affect no other connection, neither an
// existing one nor new ones.
func isolation(t *testing.T, p Pair, stall func(*testing.T, Pair)) {
	addr := Target(t, Echo)
	old := MustDial(t, p.Dial, addr)
	limit := TimeBesideStalls(t, p.Dial, addr)
	stall(t, p)
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		if _, err := echoOnce(old, limit); err != nil {
			t.Fatalf("connection from before: not within %v: %v", limit, err)
		}
	}
	for range 5 {
		start := time.Now()
		c := MustDial(t, p.Dial, addr)
		_, err := echoOnce(c, limit)
		c.Close()
		if took := time.Since(start); err != nil || took > limit {
			t.Fatalf("new connection: %v, %v, want at most %v", took, err, limit)
		}
	}
}

// TimeBesideStalls returns how long a dial and an echo may take while other connections
// stall: some seconds, and more on a busy machine, as measured by the time that they
// take before the stalls.
func TimeBesideStalls(t testing.TB, d Dialer, addr string) time.Duration {
	t.Helper()
	var calm time.Duration
	for range 20 {
		start := time.Now()
		c, err := d(t.Context(), addr)
		if err != nil {
			t.Fatalf("dial: %v", err)
		}
		_, err = echoOnce(c, Patience)
		c.Close()
		if err != nil {
			t.Fatal(err)
		}
		calm = max(calm, time.Since(start))
	}
	return 3*time.Second + 10*calm
}

// echoOnce sends some bytes over a connection and reads them back.
func echoOnce(c net.Conn, limit time.Duration) (int, error) {
	const word = "hello"
	if _, err := c.Write([]byte(word)); err != nil {
		return 0, err
	}
	return readFull(c, make([]byte, len(word)), limit)
}

// churn opens and closes many connections and checks that no goroutines stay.
func churn(t *testing.T, p Pair) {
	addr := Target(t, Echo)
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range thorough(50, 10) {
				ctx, cancel := context.WithTimeout(context.Background(), Patience)
				c, err := p.Dial(ctx, addr)
				cancel()
				if err != nil {
					t.Errorf("dial: %v", err)
					return
				}
				if i%2 == 0 {
					_, _ = c.Write([]byte{1})
					_, _ = readFull(c, make([]byte, 1), Patience)
				}
				c.Close()
			}
		})
	}
	wg.Wait()
	Eventually(t, Patience, "goroutines are gone", func() bool { return runtime.NumGoroutine() <= before+5 })
}
