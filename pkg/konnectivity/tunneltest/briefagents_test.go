// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestFloodOfBriefAgents is an attack with a valid token: on one connection, an upstream agent
// connects and resets its stream again and again. The server ends the connection after a few,
// counts it, and has authenticated no more of them; other agents stay.
func TestFloodOfBriefAgents(t *testing.T) {
	t.Parallel()
	const most = 50
	r := NewRig(t, server.Config{Tokens: tokens{}, Logger: (&logs{}).logger()})
	r.StartAgent(agent.Config{Token: token("good")}, "")
	fields := []h2.Field{{Name: "agentid", Value: "brief"}, {Name: "authorization", Value: "Bearer good"}}
	accepted := func() float64 {
		return Metric(r.Metrics.Registry, `fairlead_tunnel_server_token_checks_total{result="accepted"}`)
	}
	flood := func() float64 {
		return Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="flood"}`)
	}
	before := accepted()
	first, _ := openRogue(t, strangerTo(t, r), "/AgentService/Connect", fields...)
	for s, n := first, 1; n < most && flood() == 0; n++ {
		Eventually(t, Patience, "the agent is connected, or the connection is over", func() bool {
			return r.Server.Connected("brief") || flood() > 0
		})
		s.Reset(h2.CodeCancel)
		Eventually(t, Patience, "the agent is gone", func() bool { return !r.Server.Connected("brief") })
		time.Sleep(20 * time.Millisecond) // the server counts it a moment later
		s = rogueOver(first.Conn(), "/AgentService/Connect", fields...)
	}
	Eventually(t, Patience, "the flood is counted", func() bool { return flood() == 1 })
	if n := accepted() - before; n > 10 {
		t.Errorf("%v agents were authenticated on one connection, want at most 10", n)
	}
	_ = MustDial(t, Connect(r.Connect), Target(t, Echo)).Close()
}
