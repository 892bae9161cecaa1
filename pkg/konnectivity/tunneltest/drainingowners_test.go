// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// boundRevocable accepts tokens that were not revoked, all of one node.
type boundRevocable struct{ *revocable }

func (b boundRevocable) Check(ctx context.Context, peer, token string) (string, error) {
	_, err := b.revocable.Check(ctx, peer, token)
	return "node-1", err
}

// TestDrainingLinkLeavesItsSeat: with room for one link of a node, an agent whose link the
// server drains connects again next to it, though the drained one carries a connection.
func TestDrainingLinkLeavesItsSeat(t *testing.T) {
	t.Parallel()
	v := &revocable{}
	r := NewRig(t, server.Config{Tokens: boundRevocable{v}, ReviewInterval: 200 * time.Millisecond, MaxPerOwner: 1})
	var now atomic.Value
	now.Store("old")
	r.StartAgent(agent.Config{Token: func() (string, error) { return now.Load().(string), nil }}, "")
	_ = MustDial(t, Connect(r.Connect), Target(t, Echo)) // ends with the test
	now.Store("new")
	v.revoke("old")
	Eventually(t, Patience, "the link is drained", func() bool { return expelledLinks(r, false) == 1 })
	Eventually(t, Patience, "the new link is there beside it", func() bool { return connected(r) == 2 })
}

// TestDrainingLinksPerOwner: with room for one link of a node, the agent that replaces a
// draining one gets in. As many may drain as may stay; what is beyond that is refused
// until one has ended, so that draining is no way around the limit.
func TestDrainingLinksPerOwner(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			t.Parallel()
			const refused = `fairlead_tunnel_server_agents_refused_total{reason="limit"}`
			r := NewRig(t, server.Config{Tokens: boundTokens{}, MaxPerOwner: 1, Protocol: Only(upstreamOnly)})
			first := r.StartAgent(agentOf("node-1", agent.Config{}), "")
			end := drainHolding(t, r, first)
			wantReady(t, r, 0, "when the first drains")
			second := r.StartAgent(agentOf("node-1", agent.Config{}), "")
			drainHolding(t, r, second)
			wantReady(t, r, 0, "when the second drains")
			before := Metric(r.Metrics.Registry, refused)
			third := r.LaunchAgent(agentOf("node-1", agent.Config{}), "")
			Eventually(t, Patience, "the third is refused", func() bool { return Metric(r.Metrics.Registry, refused) >= before+2 })
			if third.Ready() {
				t.Error("a third agent is accepted while two drain")
			}
			end()
			first.Stop()
			Eventually(t, Patience, "the third is in", third.Ready)
			if n := connected(r); n != 2 {
				t.Errorf("%v links are connected, want 2", n)
			}
		})
	}
}
