// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// boundTokens accepts tokens that say themselves which node they are bound to.
type boundTokens struct{}

func (boundTokens) Check(_ context.Context, _, token string) (string, error) {
	return strings.TrimPrefix(token, "bound to "), nil
}

// agentOf is an agent with the token of a node.
func agentOf(node string, cfg agent.Config) agent.Config {
	cfg.Token = func() (string, error) { return "bound to " + node, nil }
	return cfg
}

// dialsOf is the number of dials that agents were given.
func dialsOf(agents []*Agent) (n int) {
	for _, a := range agents {
		n += int(Metric(a.Metrics.Registry, `konnectivity_network_proxy_agent_stream_packets_total{segment="to_agent",packet_type="DIAL_REQ"}`))
	}
	return n
}

// TestManyIDsOfOneNode is an attack: one token, bound to node-1, opens 20 links with an ID
// each next to the agents of two other nodes. A node has one share of the dials, however many
// agents it claims to be, whether claims are checked or not.
func TestManyIDsOfOneNode(t *testing.T) {
	t.Parallel()
	const ids, dials = 20, 200
	for _, by := range []string{"any", "node"} {
		for _, upstreamOnly := range []bool{false, true} {
			t.Run(fmt.Sprintf("claims %s, upstream=%v", by, upstreamOnly), func(t *testing.T) {
				t.Parallel()
				r := NewRig(t, server.Config{Tokens: boundTokens{}, Claims: server.Claims{By: by}, Protocol: Only(upstreamOnly)})
				var honest, rogue []*Agent
				for _, node := range []string{"node-2", "node-3"} {
					honest = append(honest, r.StartAgent(agentOf(node, agent.Config{}), ""))
				}
				for i := range ids {
					rogue = append(rogue, r.StartAgent(agentOf("node-1", agent.Config{AgentID: fmt.Sprint("sybil-", i)}), ""))
				}
				addr := Target(t, Echo)
				for range dials {
					c, err := Connect(r.Connect)(t.Context(), addr)
					if err != nil {
						t.Fatal(err)
					}
					_ = c.Close()
				}
				got := dialsOf(rogue)
				share := float64(got) / dials
				t.Logf("node-1 with %d agent IDs beside 2 agents gets %d of %d dials (%.0f %%)", ids, got, dials, 100*share)
				if n := dialsOf(honest) + got; n != dials {
					t.Errorf("%d dials are counted, want %d", n, dials)
				}
				// A third is expected, and this is 8 standard deviations away from it. With a share for each ID it would be 0.9.
				if share > 0.6 {
					t.Errorf("node-1 gets %.0f %% of the dials", 100*share)
				}
			})
		}
	}
}

// TestShareOfAnOwnerThatHoldsNothing is an attack: the agent of node-1 ends each connection at
// once, so that it never carries any, while those of node-2 last. It gets its share of the
// dials, one of two, all the same.
func TestShareOfAnOwnerThatHoldsNothing(t *testing.T) {
	t.Parallel()
	const dials = 200
	r := NewRig(t, server.Config{Tokens: boundTokens{}, Claims: server.Claims{By: "node"}})
	rogue := []*Agent{r.StartAgent(agentOf("node-1", agent.Config{}), "")}
	r.StartAgent(agentOf("node-2", agent.Config{}), "")
	addr := Target(t, Echo)
	for range dials {
		before := dialsOf(rogue)
		c := MustDial(t, Connect(r.Connect), addr)
		if dialsOf(rogue) > before {
			_ = c.Close()
		}
	}
	got := dialsOf(rogue)
	t.Logf("node-1 gets %d of %d dials", got, dials)
	if got > dials*80/100 { // one half is expected, and this is 8 standard deviations more; it would get all
		t.Errorf("node-1 gets %d of %d dials", got, dials)
	}
}

// TestLinksPerOwner: a node may hold so many links and no more. What is beyond that is
// refused, counted and logged; other nodes' agents get in, and an end makes room.
func TestLinksPerOwner(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			t.Parallel()
			said := &logs{}
			r := NewRig(t, server.Config{Tokens: boundTokens{}, Claims: server.Claims{By: "node"}, MaxPerOwner: 3, Protocol: Only(upstreamOnly), Logger: said.logger()})
			var held []*Agent
			for range 3 {
				held = append(held, r.StartAgent(agentOf("node-1", agent.Config{}), ""))
			}
			late := r.LaunchAgent(agentOf("node-1", agent.Config{}), "")
			Eventually(t, Patience, "the fourth link is refused", func() bool {
				return Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="limit"}`) >= 2
			})
			said.wantOneOf(t, `reason="limit"`, `"node-1"`, "--max-links-per-owner")
			if late.Ready() {
				t.Error("the fourth link is accepted")
			}
			r.StartAgent(agentOf("node-2", agent.Config{}), "")
			held[0].Stop()
			Eventually(t, Patience, "there is room again", late.Ready)
		})
	}
}
