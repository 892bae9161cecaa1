// SPDX-License-Identifier: Apache-2.0

package calc

import (
	"os"
	"slices"
	"testing"
)

func TestBoth(t *testing.T) {
	if !Both(true, true) || Both(false, false) {
		t.Error("wrong")
	}
}

func TestCheck(t *testing.T) {
	if Check(10) != nil || Check(11) == nil {
		t.Error("wrong")
	}
}

func TestSum(t *testing.T) {
	t.Run("three", func(t *testing.T) {
		if Sum(3) != 6 {
			t.Error("wrong")
		}
	})
}

func TestSlow(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	if !slices.Equal(Slow([]int{-1, 0, 1}), []int{0, 1}) {
		t.Error("wrong")
	}
}

func TestBase(t *testing.T) {
	if os.Getenv("MUTANTS_FAIL") != "" {
		t.Error("it fails by itself")
	}
}
