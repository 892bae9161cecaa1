// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestRefusedOnce: attempts that are refused again and again are counted each time and
// logged once, with the peer.
func TestRefusedOnce(t *testing.T) {
	t.Parallel()
	const often = 5
	var atServer, atAgent logs
	r := NewRig(t, server.Config{Tokens: tokens{}, Logger: atServer.logger()})
	counted := func(metric string) {
		t.Helper()
		Eventually(t, Patience, "refusals are counted", func() bool { return Metric(r.Metrics.Registry, metric) >= often })
	}
	t.Run("token", func(t *testing.T) {
		a := r.LaunchAgent(agent.Config{SyncInterval: 10 * time.Millisecond, SyncIntervalCap: 20 * time.Millisecond, Logger: atAgent.logger()}, "")
		counted(`fairlead_tunnel_server_agents_refused_total{reason="token"}`)
		a.Stop()
		atServer.wantOneOf(t, "token is not valid", "127.0.0.1")
		atAgent.wantOneOf(t, "Cannot connect", r.AgentTLS, "token is not valid")
	})
	garbage := func(network, address string) {
		for range often {
			nc, err := net.Dial(network, address)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = nc.Write([]byte("EHLO tunnel\r\n\r\n"))
			_, _ = io.Copy(io.Discard, nc)
			_ = nc.Close()
		}
	}
	t.Run("garbage for agents", func(t *testing.T) {
		garbage("tcp", r.AgentTLS)
		counted(`fairlead_tunnel_server_agents_refused_total{reason="tls"}`)
		atServer.wantOneOf(t, "tls", "127.0.0.1")
	})
	t.Run("garbage for clients", func(t *testing.T) {
		garbage("unix", r.GRPC)
		counted(`fairlead_tunnel_server_bad_input_total{peer="client"}`)
		atServer.wantOneOf(t, `client="`, "process")
	})
}
