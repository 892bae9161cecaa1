// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"fmt"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestReconnectsAreLoggedOnce: a host whose agent connects and goes in a loop, each time
// with another ID, has one line of each kind. An agent of another node at the same address
// has lines of its own.
func TestReconnectsAreLoggedOnce(t *testing.T) {
	const times = 20
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			said := &logs{all: true}
			r := NewRig(t, server.Config{Tokens: boundTokens{}, Protocol: Only(upstreamOnly),
				Logger: said.logger(), LogAgain: Patience})
			reconnect := func(node, id string) {
				a := r.StartAgent(agentOf(node, agent.Config{AgentID: id}), "")
				a.Stop()
				Eventually(t, Patience, "the agent is gone", func() bool { return connected(r) == 0 })
			}
			for i := range times {
				reconnect("node-1", fmt.Sprint("loops", string(rune('a'+i))))
			}
			said.wantOneOf(t, "The agent is connected", `agent="loopsa" address="127.0.0.1:`)
			said.wantOneOf(t, "The agent is gone", `agent="loopsa" address="127.0.0.1:`)
			reconnect("another node", "other")
			Eventually(t, Patience, "the other agent is logged", func() bool {
				return len(said.logged("The agent is connected")) == 2 && len(said.logged("The agent is gone")) == 2
			})
		})
	}
}
