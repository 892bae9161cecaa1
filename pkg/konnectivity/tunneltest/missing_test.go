// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestClonedServers: two servers have one ID, as on cloned machines, so that an agent keeps
// a link to one of them alone. It says so, with either protocol.
func TestClonedServers(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			t.Parallel()
			one := NewRig(t, server.Config{ServerID: "cloned", ServerCount: 2})
			two := NewRig(t, server.Config{ServerID: "cloned", ServerCount: 2})
			_, port, _ := net.SplitHostPort(one.AgentTLS)
			l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.2", port))
			if err != nil {
				t.Skipf("no second address with the same port: %v", err)
			}
			go func() {
				_ = two.Server.ServeAgents(l, one.loader("two").Server(&tls.Config{MinVersion: tls.VersionTLS12}))
			}()
			lookup := func(context.Context, string) ([]string, error) { return []string{"127.0.0.1", "127.0.0.2"}, nil }
			var log lines
			a := one.LaunchAgent(agent.Config{Lookup: lookup, Protocol: Only(upstreamOnly), Logger: log.logger(), MissingAfter: 2 * time.Second}, net.JoinHostPort("servers.test", port))
			first, second := "127.0.0.1:"+port, "127.0.0.2:"+port
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(log.text())
				}
			})
			Eventually(t, Patience, "the agent warns", func() bool {
				return log.has(`Servers are missing connected="1" servers="2" reason="connected: "cloned"; `+first+" and "+second+` both answer as server "cloned": give each server its own --server-id`) ||
					log.has(`Servers are missing connected="1" servers="2" reason="connected: "cloned"; `+second+" and "+first+` both answer as server "cloned": give each server its own --server-id`)
			})
			if n := Metric(a.Metrics.Registry, "fairlead_tunnel_agent_missing_servers"); n != 1 {
				t.Errorf("%v servers are missing by the metric, want 1", n)
			}
		})
	}
}
