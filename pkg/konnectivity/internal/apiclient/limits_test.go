// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestBusy: a request whose turn comes after its deadline fails at once with ErrBusy, and
// does not use the turn up.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Client{cfg: Config{QPS: 1, Burst: 1}}
		start := time.Now()
		if err := c.wait(t.Context()); err != nil || time.Since(start) != 0 {
			t.Fatalf("the first request waited %v: %v", time.Since(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := c.wait(ctx); !errors.Is(err, ErrBusy) || time.Since(start) != 0 {
			t.Errorf("got %v after %v, want %v at once", err, time.Since(start), ErrBusy)
		}
		if err := c.wait(t.Context()); err != nil || time.Since(start) != time.Second {
			t.Errorf("got the next turn after %v, %v, want it after 1 s", time.Since(start), err)
		}
	})
}

// TestLargeAnswer: an answer of 16 MiB is read, and a larger one fails instead of filling
// the memory.
func TestLargeAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		size int
		ok   bool
	}{"at the bound": {16 << 20, true}, "above it": {16<<20 + 1, false}} {
		t.Run(name, func(t *testing.T) {
			c := clientFor(t, func(w http.ResponseWriter, _ *http.Request) {
				const head, tail = `{"text":"`, `"}`
				_, _ = w.Write([]byte(head + strings.Repeat("x", tc.size-len(head)-len(tail)) + tail))
			})
			defer c.CloseIdle()
			var got struct{ Text string }
			if err := c.do(t.Context(), http.MethodGet, "/", nil, &got); (err == nil) != tc.ok {
				t.Errorf("an answer of %d bytes: %v, want success %v", tc.size, err, tc.ok)
			}
		})
	}
}
