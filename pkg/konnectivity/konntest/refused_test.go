package konntest

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestRefusedOnce: attempts that are refused again and again are counted each time and
// logged once, with the peer.
func TestRefusedOnce(t *testing.T) {
	const often = 5
	var atServer, atAgent logs
	r := NewRig(t, server.Config{Tokens: tokens{}, Logf: atServer.logf})
	counted := func(metric string) {
		t.Helper()
		Eventually(t, Patience, "refusals are counted", func() bool { return Metric(r.Metrics.Registry, metric) >= often })
	}
	once := func(l *logs, texts ...string) {
		t.Helper()
		lines := l.logged(texts[0])
		if len(lines) != 1 {
			t.Fatalf("logged %q, want one line with %q", lines, texts[0])
		}
		for _, text := range texts {
			if !strings.Contains(lines[0], text) {
				t.Errorf("logged %q, want %q in it", lines[0], text)
			}
		}
	}
	t.Run("token", func(*testing.T) {
		a := r.LaunchAgent(agent.Config{SyncInterval: 10 * time.Millisecond, SyncIntervalCap: 20 * time.Millisecond, Logf: atAgent.logf}, "")
		counted(`fairlead_tunnel_server_agents_refused_total{reason="token"}`)
		a.Stop()
		once(&atServer, "token is not valid", "127.0.0.1")
		once(&atAgent, "cannot connect", r.AgentTLS, "token is not valid")
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
	t.Run("garbage for agents", func(*testing.T) {
		garbage("tcp", r.AgentTLS)
		counted(`fairlead_tunnel_server_agents_refused_total{reason="tls"}`)
		once(&atServer, "tls", "127.0.0.1")
	})
	t.Run("garbage for clients", func(*testing.T) {
		garbage("unix", r.GRPC)
		counted(`fairlead_tunnel_server_bad_input_total{peer="client"}`)
		once(&atServer, "client at", "process")
	})
}
