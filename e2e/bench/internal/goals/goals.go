// SPDX-License-Identifier: Apache-2.0

// Package goals judges the rows of a benchmark. Start with [Missed].
package goals

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Goal is what a figure has to reach: one of the two. The zero value is no goal.
type Goal struct{ AtLeast, AtMost float64 }

// Reached reports whether a figure is within the goal.
func (g Goal) Reached(v float64) bool {
	return (g.AtLeast == 0 || v >= g.AtLeast) && (g.AtMost == 0 || v <= g.AtMost)
}

// String returns the goal as tables have it, such as "≥ 1".
func (g Goal) String() string {
	switch {
	case g.AtLeast != 0:
		return fmt.Sprintf("≥ %.4g", g.AtLeast)
	case g.AtMost != 0:
		return fmt.Sprintf("≤ %.4g", g.AtMost)
	}
	return ""
}

// Missed are the rows that do not reach their goals.
type Missed []string

// Word returns "reached" or "missed", and remembers a row that is missed.
func (m *Missed) Word(row string, reached bool) string {
	if reached {
		return "reached"
	}
	*m = append(*m, row)
	return "missed"
}

// Cells returns the last two cells of a row: its goal, and whether the figure reaches it.
func (m *Missed) Cells(row string, g Goal, v float64) string {
	return g.String() + " | " + m.Word(row, g.Reached(v))
}

// Err names the rows that were missed.
func (m *Missed) Err() error {
	if len(*m) == 0 {
		return nil
	}
	return errors.New("these rows missed their goals: " + strings.Join(*m, "; ") + ": measure again on a machine that does nothing else, or find out why")
}

// Quantile of figures, of which there is at least one. 0.5 is the median.
func Quantile(v []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(v))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
