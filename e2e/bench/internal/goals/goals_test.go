// SPDX-License-Identifier: Apache-2.0

package goals

import (
	"strings"
	"testing"
)

// TestGoals: a figure at the goal reaches it, one beyond it does not, and the error names that row alone.
func TestGoals(t *testing.T) {
	var missed Missed
	for _, c := range []struct {
		row  string
		goal Goal
		v    float64
		want string
	}{
		{"rate", Goal{AtLeast: 0.9}, 0.9, "≥ 0.9 | reached"},
		{"slow rate", Goal{AtLeast: 0.9}, 0.89, "≥ 0.9 | missed"},
		{"time", Goal{AtMost: 1.1}, 1.1, "≤ 1.1 | reached"},
		{"long time", Goal{AtMost: 1.1}, 1.11, "≤ 1.1 | missed"},
	} {
		if got := missed.Cells(c.row, c.goal, c.v); got != c.want {
			t.Errorf("%s: %q, want %q", c.row, got, c.want)
		}
	}
	if err := missed.Err(); err == nil || !strings.Contains(err.Error(), ": slow rate; long time: ") {
		t.Errorf("the error is %v", err)
	}
	if err := new(Missed).Err(); err != nil {
		t.Errorf("without a missed row: %v", err)
	}
}

// TestQuantile: the values may be in any order.
func TestQuantile(t *testing.T) {
	v := []float64{3, 1, 2}
	if Quantile(v, 0.5) != 2 || Quantile(v, 1) != 3 || Quantile(v, 0) != 1 || v[0] != 3 {
		t.Errorf("%v %v %v of %v", Quantile(v, 0), Quantile(v, 0.5), Quantile(v, 1), v)
	}
}
