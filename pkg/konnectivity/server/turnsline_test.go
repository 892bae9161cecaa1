// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestAnsweredHandshakesGoFirst checks that a handshake that the server has already
// answered goes ahead of all that it has not answered, unless the handshake returns to
// the queue again and again. A handshake that gives up leaves the queue.
func TestAnsweredHandshakesGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(1)
		holder := &turn{of: all, ctx: t.Context()}
		if err := holder.Computes(); err != nil {
			t.Fatal(err)
		}
		var order []string
		join := func(ctx context.Context, name string, answered bool) {
			w := &turn{of: all, ctx: ctx}
			if answered {
				w.Answers()
			}
			if name == "dripping" {
				w.first = maxFirst
			}
			go func() {
				if err := w.Computes(); err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Errorf("%s: %v", name, err)
					}
					name = "-" + name
				}
				order = append(order, name)
				w.end()
			}()
			synctest.Wait()
		}
		join(t.Context(), "new1", false)
		tired, give := context.WithCancel(t.Context())
		join(tired, "tired", true)
		join(t.Context(), "new2", false)
		join(t.Context(), "dripping", true)
		join(t.Context(), "answered", true)
		give()
		synctest.Wait()
		holder.Waits()
		synctest.Wait()
		if got, want := strings.Join(order, " "), "-tired answered new1 new2 dripping"; got != want {
			t.Errorf("turns went to %q, want %q", got, want)
		}
		if all.free != 1 {
			t.Errorf("%d turns are free, want 1", all.free)
		}
	})
}

// TestTurnsAreNotLost checks that every turn is returned exactly once, no matter which
// handshake gives up and when.
func TestTurnsAreNotLost(t *testing.T) {
	const n = 2
	all := newTurns(n)
	var wg sync.WaitGroup
	for i := range 2000 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(3000))*time.Microsecond)
			defer cancel()
			w := &turn{of: all, ctx: ctx}
			for range 1 + i%3 {
				if w.Computes() == nil {
					time.Sleep(5 * time.Microsecond)
				}
				w.Answers()
			}
			w.end()
		})
	}
	wg.Wait()
	if all.free != n || all.answered.Len()+all.new.Len() > 0 {
		t.Errorf("%d turns are free, want %d; %d wait", all.free, n, all.answered.Len()+all.new.Len())
	}
}
