package shell

import "testing"

func TestProcessors(t *testing.T) {
	for _, c := range []struct{ all, links, want int }{
		{1, 0, 1}, {1, 4, 1}, {2, 1, 1}, {2, 2, 2}, {2, 8, 2}, {3, 1, 1}, {8, 0, 4}, {8, 1, 4}, {8, 3, 4}, {8, 6, 6},
	} {
		if got := processors(c.all, c.links); got != c.want {
			t.Errorf("%d processors, %d links: Go runs on %d, want %d", c.all, c.links, got, c.want)
		}
	}
}
