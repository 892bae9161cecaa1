// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"testing"
	"time"
)

// TestComingBackIsSpread: agents that lose the same server in the same moment plan to
// come back at times that lie all over half of the interval, and none of them later.
func TestComingBackIsSpread(t *testing.T) {
	const agents, interval = 400, 10 * time.Second
	var waits []time.Duration
	for range agents {
		s := &search{a: &Agent{cfg: Config{SyncInterval: interval}, lost: []string{"server:1"}}, routes: map[string]*route{}}
		s.noteLost()
		r := s.routes["server:1"]
		if r == nil || !r.lost || !slices.Contains(s.order, "server:1") {
			t.Fatalf("the server's address is not tried again: %+v", r)
		}
		waits = append(waits, r.next.Sub(r.lostAt))
	}
	var tenth [10]int
	for _, w := range waits {
		if w < 0 || w > interval/2 {
			t.Fatalf("an agent waits for %v, at most %v is right", w, interval/2)
		}
		tenth[min(int(10*w/(interval/2)), 9)]++
	}
	for i, n := range tenth {
		if n < agents/40 { // a quarter of a fair share, five standard deviations below it
			t.Errorf("%d of %d agents come in tenth %d of the time: %v", n, agents, i, tenth)
		}
	}
}

// TestRetriesAreSpread: agents that fail in the same moment do not try again in one.
func TestRetriesAreSpread(t *testing.T) {
	least, most := time.Hour, time.Duration(0)
	for range 400 {
		w := jitter(time.Second)
		least, most = min(least, w), max(most, w)
	}
	if least < time.Second || most > 1100*time.Millisecond || most-least < 80*time.Millisecond {
		t.Errorf("a second becomes %v to %v", least, most)
	}
}
