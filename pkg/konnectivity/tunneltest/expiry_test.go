// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tlsreload"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// clientOf returns the TLS of an agent with a certificate of its own.
func clientOf(t *testing.T, ca *CA, crt, key string) func() (*tls.Config, error) {
	t.Helper()
	loader := newLoader(t, tlsreload.Files{Cert: crt, Key: key, CA: ca.File}, logr.Logger{})
	return func() (*tls.Config, error) {
		return loader.Client(&tls.Config{ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}), nil
	}
}

// TestExpiredAgent: an agent whose certificate has expired is refused, counted each time
// and logged once with the reason. Another agent's transfers go on, and the first comes
// in when its certificate is renewed.
func TestExpiredAgent(t *testing.T) {
	t.Parallel()
	l := &logs{}
	r := NewRig(t, server.Config{Logger: l.logger()})
	r.StartAgent(agent.Config{}, "")
	tr := StartTraffic(t, Connect(r.Connect), nil)
	crt, key := r.CA.Issue(t, "expired", time.Now().Add(-time.Hour))
	a := r.LaunchAgent(agent.Config{TLS: clientOf(t, r.CA, crt, key)}, "")
	Eventually(t, Patience, "refusals are counted", func() bool {
		return Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="tls"}`) >= 3
	})
	if lines := l.logged("expired"); len(lines) != 1 {
		t.Errorf("logged %q, want one line", lines)
	}
	if a.Ready() {
		t.Error("an agent with an expired certificate is connected")
	}
	tr.Progress()
	r.CA.Issue(t, "expired", time.Now().Add(time.Hour))
	Eventually(t, Patience, "the agent with the renewed certificate is connected", func() bool { return r.Server.Connected(a.ID) })
	tr.End()
	if n := tr.Cut(); n > 0 {
		t.Errorf("%d transfers of the other agent were cut", n)
	}
}

// TestExpiredServer: a server whose certificate has expired is refused by agents, which
// count that each time and log it once with the reason, and connected to when its
// certificate is renewed. Agents that are connected stay.
func TestExpiredServer(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{})
	r.StartAgent(agent.Config{}, "")
	tr := StartTraffic(t, Connect(r.Connect), nil)
	r.CA.Issue(t, "server", time.Now().Add(-time.Hour))
	l := &logs{}
	a := r.LaunchAgent(agent.Config{Logger: l.logger()}, "")
	Eventually(t, Patience, "failures are counted", func() bool {
		return Metric(a.Metrics.Registry, `fairlead_tunnel_agent_connect_failures_total{reason="certificate"}`) >= 3
	})
	if lines := l.logged("expired"); len(lines) != 1 {
		t.Errorf("logged %q, want one line", lines)
	}
	if a.Ready() {
		t.Error("an agent is connected to a server with an expired certificate")
	}
	tr.Progress()
	r.CA.Issue(t, "server", time.Now().Add(time.Hour))
	Eventually(t, Patience, "the agent is connected", func() bool { return a.Ready() && r.Server.Connected(a.ID) })
	tr.End()
	if n := tr.Cut(); n > 0 {
		t.Errorf("%d transfers of the other agent were cut", n)
	}
}
