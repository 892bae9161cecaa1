// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestSearchModel: whatever servers, addresses and the name have done, an agent has all its
// links some time after the last of it. Until then it does not try more often than it
// should, and from then on it tries nothing.
func TestSearchModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		plan := drawPlan(rt)
		var faults []string
		synctest.Test(t, func(*testing.T) { faults = newWorld(plan).run() })
		if len(faults) > 0 {
			rt.Fatalf("%d servers, %d links to each, addresses lead to %v, %+v:\n%v", plan.servers, plan.links, plan.leads, plan.events, faults)
		}
	})
}

// plan is what there is, and what happens.
type plan struct {
	servers, links int
	leads          [][]int // for each address the servers to which it leads, in turn
	events         []event
}

type event struct {
	After time.Duration
	What  string
	Which int
	For   time.Duration
}

func drawPlan(rt *rapid.T) plan {
	p := plan{servers: rapid.IntRange(1, 4).Draw(rt, "servers"), links: rapid.IntRange(1, 3).Draw(rt, "links")}
	for i := range p.servers { // an address of its own, or the first one's
		if i == 0 || rapid.Bool().Draw(rt, "own address") {
			p.leads = append(p.leads, nil)
		}
		at := len(p.leads) - 1
		if rapid.Bool().Draw(rt, "first") {
			at = 0
		}
		p.leads[at] = append(p.leads[at], i)
	}
	for i := range p.leads {
		if len(p.leads[i]) == 0 { // leads to where others do
			p.leads[i] = p.leads[0]
		}
	}
	kinds := []string{"kill", "leave", "refuse", "hang", "slow", "name fails", "name lacks"}
	for range rapid.IntRange(0, 12).Draw(rt, "events") {
		p.events = append(p.events, event{
			After: time.Duration(rapid.IntRange(0, 20_000).Draw(rt, "after ms")) * time.Millisecond,
			What:  rapid.SampledFrom(kinds).Draw(rt, "what"),
			Which: rapid.IntRange(0, 7).Draw(rt, "which"),
			For:   time.Duration(rapid.IntRange(0, 60_000).Draw(rt, "for ms")) * time.Millisecond,
		})
	}
	return p
}
