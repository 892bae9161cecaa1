// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// TestOwnProtocolRequired checks that a program that requires Fairlead's protocol refuses a
// peer without it. The logs of the refusing side name the flag, and the server counts the
// agent.
func TestOwnProtocolRequired(t *testing.T) {
	const refused = `fairlead_tunnel_server_agents_refused_total{reason="protocol"}`
	t.Run("upstream's agent", func(t *testing.T) {
		var at logs
		r := NewRig(t, server.Config{Protocol: settings.ProtocolFairlead, Logger: at.logger()})
		a := r.LaunchAgent(agent.Config{Protocol: settings.ProtocolUpstream, SyncInterval: time.Hour}, "")
		Eventually(t, Patience, "the agent is counted", func() bool { return Metric(r.Metrics.Registry, refused) == 1 })
		a.Stop()
		at.wantOneOf(t, `reason="protocol"`, "--link=fairlead")
	})
	t.Run("an agent without ALPN", func(t *testing.T) {
		r := NewRig(t, server.Config{Protocol: settings.ProtocolFairlead})
		cfg, err := r.AgentTLSConfig()()
		if err != nil {
			t.Fatal(err)
		}
		cfg.ServerName, cfg.NextProtos = "127.0.0.1", nil
		nc, err := tls.Dial("tcp", r.AgentTLS, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = nc.Close() }()
		_ = nc.SetReadDeadline(time.Now().Add(Patience))
		if n, err := nc.Read(make([]byte, 1)); err == nil || n > 0 {
			t.Errorf("the server sent %d bytes, want the end", n)
		}
		Eventually(t, Patience, "the agent is counted", func() bool { return Metric(r.Metrics.Registry, refused) == 1 })
	})
	t.Run("upstream's server", func(t *testing.T) {
		var at logs
		r := NewRig(t, server.Config{Protocol: settings.ProtocolUpstream})
		a := r.LaunchAgent(agent.Config{Protocol: settings.ProtocolFairlead, SyncInterval: time.Hour, Logger: at.logger()}, "")
		Eventually(t, Patience, "the agent says why", func() bool { return len(at.logged("Cannot connect")) > 0 })
		a.Stop()
		at.wantOneOf(t, "Cannot connect", "--link=fairlead")
	})
	t.Run("both speak it", func(t *testing.T) {
		r := NewRig(t, server.Config{Protocol: settings.ProtocolFairlead})
		r.StartAgent(agent.Config{Protocol: settings.ProtocolFairlead}, "")
		Run(t, Pair{Dial: GRPC(r.GRPC), SlowClients: true, SlowTargets: true, Failure: "connection refused"})
	})
}
