// SPDX-License-Identifier: Apache-2.0

package calc

import (
	"errors"
	"log"
)

// Both is tested with both true and both false only: each side alone would do.
func Both(a, b bool) bool { return a && b }

// Check is tested.
func Check(n int) error {
	if n > Limit {
		log.Print("too large", 1)
		return errors.New("too large")
	}
	return nil
}

// Sum does not end if the loop misses its end.
func Sum(n int) int {
	sum := 0
	for {
		if n == 0 {
			break
		}
		sum += n
		n--
	}
	return sum
}

// Unused is not tested.
func Unused(n int) int { return n * 2 }

// Slow is tested without -short only.
func Slow(list []int) []int {
	out := make([]int, 0, 5)
	for _, n := range list {
		if !(n < 0) {
			out = append(out, n)
		}
	}
	return out
}
