// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The rollout tests assert on the counts of a load, so the counts must be
// correct.
func TestLoadCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		load := StartLoad(t.Context(), 20, func(ctx context.Context) error {
			n++
			switch {
			case n%10 == 0:
				return errors.New("refused")
			case n == 7:
				<-ctx.Done() // hangs until it counts as failed
				return ctx.Err()
			}
			return nil
		})
		time.Sleep(10*time.Second + time.Millisecond)
		got := load.Stop()
		if got.Made != 200 || got.Failed != 21 || got.Errors["refused"] != 20 || got.Max != dialLimit {
			t.Errorf("want 200 dials, 20 refused, one that hung for %s; got %+v", dialLimit, got)
		}
		if text := got.String(); !strings.Contains(text, "200 dials, 21 failed") {
			t.Error(text)
		}
	})
}

func TestStreamsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tick := func(ctx context.Context, alive func(), limit time.Duration) {
			for begin := time.Now(); ctx.Err() == nil && time.Since(begin) < limit; time.Sleep(time.Second) {
				alive()
			}
		}
		begin := time.Now()
		streams, err := StartStreams(t.Context(), 1, map[string]Stream{
			"steady": func(ctx context.Context, alive func()) error {
				tick(ctx, alive, time.Hour)
				return ctx.Err()
			},
			"breaks": func(ctx context.Context, alive func()) error {
				tick(ctx, alive, 20*time.Second)
				return ErrCorrupt
			},
			"stalls": func(ctx context.Context, alive func()) error {
				alive()
				<-ctx.Done()
				return ctx.Err()
			},
			"shuts": func(ctx context.Context, alive func()) error {
				if time.Since(begin) > 10*time.Second {
					time.Sleep(30 * time.Second)
					return errors.New("refused")
				}
				tick(ctx, alive, 10*time.Second)
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(21*time.Second - time.Since(begin))
		got := streams.Stop()
		if got.Opened != 7 || len(got.Broken) != 3 || got.Failed != 0 {
			t.Errorf("want seven opened and three broken, got %s", got)
		}
		for _, want := range []string{"breaks 0 after 20s: " + ErrCorrupt.Error(), "stalls 0 after 15s: " + ErrStalled.Error(), "shuts 0 after 10s: it ended"} {
			if !strings.Contains(got.String(), want) {
				t.Errorf("no word of %q in %s", want, got)
			}
		}
	})
}

// Streams counts a stream that cannot be opened separately from one that
// breaks.
func TestStreamsInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		streams, err := StartStreams(t.Context(), 1, map[string]Stream{"x": func(_ context.Context, alive func()) error {
			if time.Since(begin) > 0 {
				return errors.New("refused")
			}
			alive()
			time.Sleep(time.Second)
			return errors.New("cut")
		}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500*time.Millisecond - time.Since(begin))
		if got := streams.Stop(); got.Failed < 1 || got.Failed != got.Opened-1 {
			t.Errorf("want that all but the first were in vain, got %s", got)
		}
	})
}

func TestNumbers(t *testing.T) {
	for input, good := range map[string]bool{
		"tick 4\nother\ntick 5\ntick 6\n": true,
		"tick 4\ntick 6\n":                false,
		"tick 4\ntick 4\n":                false,
		"tick x\n":                        false,
	} {
		n := 0
		if err := numbers(strings.NewReader(input), "tick ", func() { n++ }); (err == nil) != good || good && n != 3 {
			t.Errorf("%q: %d lines, %v", input, n, err)
		}
	}
}
