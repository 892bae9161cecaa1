// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestLongAgentID: an agent ID of 256 bytes is accepted. A longer one is refused, counted
// and named to the agent, and the log does not have it.
func TestLongAgentID(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			t.Parallel()
			var atServer, atAgent logs
			r := NewRig(t, server.Config{Protocol: Only(upstreamOnly), Logger: atServer.logger()})
			r.StartAgent(agent.Config{AgentID: strings.Repeat("i", 256)}, "")
			long := r.LaunchAgent(agent.Config{AgentID: strings.Repeat("j", 257), Logger: atAgent.logger()}, "")
			Eventually(t, Patience, "the agent is refused", func() bool {
				return Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="identifiers"}`) > 0 && len(atAgent.logged("Cannot connect")) > 0
			})
			long.Stop()
			if r.Server.Connected(long.ID) {
				t.Error("the agent is connected")
			}
			atServer.wantOneOf(t, `reason="identifiers"`, "257 bytes")
			atAgent.wantOneOf(t, "Cannot connect", "257 bytes")
			if lines := atServer.logged("jjj"); len(lines) > 0 {
				t.Errorf("logged %q", lines)
			}
		})
	}
}
