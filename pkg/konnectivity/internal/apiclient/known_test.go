// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestKnownHosts checks that, while 150 unknown hosts send more requests than the rate
// allows, a host whose token was accepted before waits for at most one of them. The others
// take turns as before, and are refused at their deadline.
func TestKnownHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClient(&Config{QPS: 5, Burst: 1})
		c.known.add("192.0.2.1:1")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		defer wg.Wait()
		var mu sync.Mutex
		served, busy := 0, 0
		for i := range 150 {
			wg.Go(func() {
				err := c.waitFor(ctx, fmt.Sprintf("198.51.100.%d:1", i))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					served++
				case errors.Is(err, ErrBusy):
					busy++
				default:
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		for range 3 {
			start := time.Now()
			if err := c.waitFor(ctx, "192.0.2.1:2"); err != nil || time.Since(start) > 400*time.Millisecond {
				t.Errorf("the known host waited %v: %v", time.Since(start), err)
			}
		}
		wg.Wait()
		if served < 90 || served+busy != 150 {
			t.Errorf("%d of 150 other hosts were served and %d refused, want some 97 and the rest", served, busy)
		}
	})
}

// TestKnownHostsAreForgotten: a host without an accepted token is not known, and one with
// such a token only for a time.
func TestKnownHostsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k known
		k.add("192.0.2.1:1")
		if !k.has("192.0.2.1:9") || k.has("192.0.2.2:1") {
			t.Error("hosts are not told apart by their address")
		}
		time.Sleep(knownFor)
		if k.has("192.0.2.1:1") {
			t.Errorf("the host is still known after %v", knownFor)
		}
	})
}
