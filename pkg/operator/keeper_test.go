// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestKeeperBacksOff checks that a keeper that fails for good does so less and less often, down
// to as often as it looks anyway, and that one success makes the next failure repeat soon.
func TestKeeperBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var looks []time.Time
		works := 12 // the number of the look that succeeds
		k := &keeper{name: "Looking", timing: usual, look: func(context.Context) error {
			if looks = append(looks, time.Now()); len(looks) == works {
				return nil
			}
			return errors.New("forbidden")
		}}
		go func() { _ = k.Start(ctx) }()
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		cancel()
		synctest.Wait()
		if len(looks) < works+2 {
			t.Fatalf("%d looks in 3 hours", len(looks))
		}
		gap := func(i int) time.Duration { return looks[i+1].Sub(looks[i]) }
		if gap(0) != usual.keepAgain || gap(1) != 2*usual.keepAgain {
			t.Errorf("the first looks come after %v and %v, want %v and twice as much", gap(0), gap(1), usual.keepAgain)
		}
		for i := works - 3; i < works; i++ {
			if gap(i) != usual.keepEvery {
				t.Errorf("look %d comes after %v, want %v", i+1, gap(i), usual.keepEvery)
			}
		}
		if gap(works) != usual.keepAgain {
			t.Errorf("the look after a failure that follows a success comes after %v, want %v", gap(works), usual.keepAgain)
		}
	})
}
