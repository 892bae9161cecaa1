// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"io"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// answerTime is the keepalive timeout: a busy machine answers in it.
const answerTime = 2 * time.Second

// TestAgentKeepalive checks that the server gives up an upstream agent that answers
// nothing after the keepalive time and the keepalive timeout, and not before.
func TestAgentKeepalive(t *testing.T) {
	for name, c := range map[string]struct {
		keepalive time.Duration
		gone      bool
	}{"short": {500 * time.Millisecond, true}, "long": {time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := tunneltest.NewRig(t, server.Config{Protocol: settings.ProtocolUpstream, AgentKeepalive: c.keepalive, KeepaliveTimeout: answerTime})
			p := tunneltest.NewProxy(t, r.AgentTLS)
			r.StartAgent(agent.Config{}, p.Addr)
			time.Sleep(2 * (500*time.Millisecond + answerTime)) // silent, and answers pings
			links := func() float64 {
				return tunneltest.Metric(r.Metrics.Registry, `fairlead_tunnel_server_links{protocol="upstream"}`)
			}
			if links() != 1 {
				t.Fatal("an agent that answers is given up")
			}
			p.Freeze(true)
			p.Refuse(true)
			if c.gone {
				tunneltest.Eventually(t, tunneltest.Patience, "the agent is given up", func() bool { return links() == 0 })
				return
			}
			time.Sleep(8 * time.Second) // longer than any ping goes unanswered above
			if links() != 1 {
				t.Error("the agent is given up")
			}
		})
	}
}

// TestFrontendKeepalive checks that the server gives up a gRPC client that answers
// nothing after --frontend-keepalive-time and the keepalive timeout, and not before. A
// client that is only silent stays.
func TestFrontendKeepalive(t *testing.T) {
	for name, c := range map[string]struct {
		keepalive time.Duration
		gone      bool
	}{"short": {500 * time.Millisecond, true}, "long": {time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := tunneltest.NewRig(t, server.Config{FrontendKeepalive: c.keepalive, KeepaliveTimeout: answerTime})
			r.StartAgent(agent.Config{}, "")
			frontend, _ := r.FrontendsTLS()
			cfg, err := r.AgentTLSConfig()()
			if err != nil {
				t.Fatal(err)
			}
			p := tunneltest.NewProxy(t, frontend)
			defer p.Freeze(false) // before the client closes, so that the server sees the close
			conn := tunneltest.MustDial(t, tunneltest.GRPCTLS(p.Addr, cfg), tunneltest.Target(t, tunneltest.Echo))
			time.Sleep(2 * (500*time.Millisecond + answerTime)) // silent, and answers pings
			if _, err := conn.Write([]byte{1}); err != nil {
				t.Fatalf("a client that answers pings: %v", err)
			}
			if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
				t.Fatalf("a client that answers pings: %v", err)
			}
			p.Freeze(true)
			if c.gone {
				tunneltest.Eventually(t, tunneltest.Patience, "the client is given up", func() bool { return r.Server.Established() == 0 })
				return
			}
			time.Sleep(8 * time.Second) // longer than any ping goes unanswered above
			if r.Server.Established() != 1 {
				t.Error("the client is given up")
			}
		})
	}
}
