// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"runtime"
	"testing"
)

func TestProcessors(t *testing.T) {
	for _, c := range []struct{ all, links, want int }{
		{1, 0, 1}, {1, 4, 1}, {2, 1, 1}, {2, 2, 2}, {2, 8, 2}, {3, 1, 1}, {8, 0, 4}, {8, 1, 4}, {8, 3, 4}, {8, 6, 6},
	} {
		if got := processors(c.all, c.links); got != c.want {
			t.Errorf("%d processors, %d links: Go runs on %d, want %d", c.all, c.links, got, c.want)
		}
	}
}

// GOMAXPROCS decides where Go's runtime heeds it.
func TestLimitProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	for _, c := range []struct {
		env  string
		want int
	}{{"", 4}, {"0", 4}, {"-1", 4}, {"many", 4}, {"8", 8}} {
		t.Setenv("GOMAXPROCS", c.env)
		runtime.GOMAXPROCS(8)
		LimitProcessors(1)
		if got := runtime.GOMAXPROCS(0); got != c.want {
			t.Errorf("GOMAXPROCS=%q: Go runs on %d of 8 processors, want %d", c.env, got, c.want)
		}
	}
}
