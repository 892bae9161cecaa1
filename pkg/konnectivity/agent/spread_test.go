// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSpreadOverServers checks that agents that each need one server spread over all
// servers, and that the agents of a server that goes away spread over the others.
func TestSpreadOverServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents, servers = 400, 4
		ctx, stop := context.WithCancel(t.Context())
		var all []*world
		var searches sync.WaitGroup
		for range agents {
			w := newWorld(plan{servers: servers, links: 1, leads: [][]int{{0}, {1}, {2}, {3}}})
			w.says = 1
			all = append(all, w)
			searches.Go(func() { w.a.search(w.open).until(ctx) })
		}
		// A fair share, and five standard deviations less.
		spread := func(over int, among []int) {
			t.Helper()
			var have [servers]int
			for _, w := range all {
				for i := range servers {
					w.do(func() { have[i] += len(w.up[i]) })
				}
			}
			sum := 0
			for i, n := range have {
				sum += n
				if least := agents/over - 5*9; slices.Contains(among, i) && n < least {
					t.Errorf("server %d has %d of %d agents: %v", i, n, agents, have)
				}
			}
			if sum != agents {
				t.Errorf("%d agents have %d links: %v", agents, sum, have)
			}
		}
		time.Sleep(10 * time.Second)
		spread(servers, []int{0, 1, 2, 3})
		for _, w := range all {
			w.do(func() { w.down[0]++ })
			w.end(0)
		}
		time.Sleep(time.Minute)
		spread(servers-1, []int{1, 2, 3})
		stop()
		searches.Wait()
		for _, w := range all {
			for i := range servers {
				w.end(i)
			}
			w.a.wg.Wait()
		}
	})
}
