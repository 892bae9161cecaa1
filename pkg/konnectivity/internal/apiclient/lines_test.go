// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"
)

// TestLines checks that only one request of each host waits for the rate limit: a request
// of another host comes after one of them, not after all. It also checks that nothing is
// kept for hosts that no longer wait.
func TestLines(t *testing.T) {
	cl := clientFor(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	cl.cfg.QPS, cl.cfg.Burst = 20, 1
	var mu sync.Mutex
	var order []string
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	ask := func(peer string) {
		err := cl.doFor(ctx, peer, "GET", "/", nil, nil)
		if err == nil {
			mu.Lock()
			order = append(order, peer[:9])
			mu.Unlock()
		} else if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	for i := range 40 { // takes two seconds at this rate
		wg.Go(func() { ask(fmt.Sprint("192.0.2.1:", i+1)) })
	}
	for waiting, end := 0, time.Now().Add(10*time.Second); waiting < 30; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d requests wait in line", waiting)
		}
		cl.lines.mu.Lock()
		if l := cl.lines.of[hostOf("192.0.2.1:1")]; l != nil {
			waiting = l.n
		}
		cl.lines.mu.Unlock()
	}
	mu.Lock()
	served := len(order)
	mu.Unlock()
	ask("192.0.2.2:1")
	mu.Lock()
	if n := len(order); n == 0 || order[n-1] != "192.0.2.2" || n > served+10 {
		t.Errorf("another host's request came after %d, when %d had been served: %v", n, served, order)
	}
	mu.Unlock()
	cancel()
	wg.Wait()
	if n := len(cl.lines.of); n != 0 {
		t.Errorf("%d hosts are still known", n)
	}
}

// TestLineInTime checks that a caller that does not become the first of its host before its
// deadline gets ErrBusy.
func TestLineInTime(t *testing.T) {
	var ls lines
	leave, err := ls.enter(t.Context(), "192.0.2.1:1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := ls.enter(ctx, "192.0.2.1:2"); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v, want %v", err, ErrBusy)
	}
	leave()
	if leave, err = ls.enter(t.Context(), "192.0.2.1:3"); err != nil {
		t.Fatal(err)
	}
	leave()
}

func TestHostOf(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1:1", "192.0.2.1:2", true},
		{"192.0.2.1:1", "[::ffff:192.0.2.1]:2", true},
		{"192.0.2.1:1", "192.0.2.2:1", false},
		{"[2001:db8::1]:1", "[2001:db8::ffff:2]:2", true},
		{"[fe80::1%eth0]:1", "[fe80::1%eth1]:1", true},
		{"[2001:db8:0:1::1]:1", "[2001:db8:0:2::1]:1", false},
		{"192.0.2.1:1", "somebody", false},
	} {
		if same := hostOf(c.a) == hostOf(c.b); same != c.same {
			t.Errorf("%s and %s: same host %v, want %v", c.a, c.b, same, c.same)
		}
	}
}
