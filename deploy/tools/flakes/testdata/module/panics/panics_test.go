// SPDX-License-Identifier: Apache-2.0

package panics

import "testing"

// TestBeside is running when TestPanics ends the program.
func TestBeside(t *testing.T) {
	t.Parallel()
	select {}
}

func TestPanics(t *testing.T) {
	t.Parallel()
	var m map[string]int
	m["a"] = 1
}
