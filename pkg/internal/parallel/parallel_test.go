// SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestMap proves that results are in the order of the inputs, and that no more than Limit calls run at the same time, and that many do.
func TestMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inputs := make([]int, 3*Limit)
		for i := range inputs {
			inputs[i] = i
		}
		var now, most atomic.Int32
		got, err := Map(t.Context(), inputs, func(_ context.Context, i int) (int, error) {
			n := now.Add(1)
			defer now.Add(-1)
			for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
			}
			time.Sleep(time.Duration(50-i) * time.Millisecond)
			return -i, nil
		})
		if err != nil || len(got) != len(inputs) || !slices.IsSortedFunc(got, func(a, b int) int { return b - a }) {
			t.Errorf("got %v, %v", got, err)
		}
		if most.Load() > Limit || most.Load() < 2 {
			t.Errorf("%d calls at the same time", most.Load())
		}
	})
}

// TestError proves that the first error is returned, and that it ends the calls that run.
func TestError(t *testing.T) {
	failed := errors.New("forbidden")
	_, err := Map(t.Context(), []int{0, 1, 2}, func(ctx context.Context, i int) (int, error) {
		if i == 1 {
			return 0, failed
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(10 * time.Second):
			t.Error("the call was not ended")
			return 0, nil
		}
	})
	if !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
}
