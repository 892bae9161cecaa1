// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// answerTime is the keepalive timeout: a busy machine answers in it.
const answerTime = 2 * time.Second

const keepalive = 200 * time.Millisecond

// TestAgentKeepalive checks that the server gives up an upstream agent that answers
// nothing after the keepalive time and the keepalive timeout, and not before.
func TestAgentKeepalive(t *testing.T) {
	t.Parallel()
	type agents struct {
		links func() float64
		proxy *tunneltest.Proxy
	}
	start := func(every time.Duration) agents {
		r := tunneltest.NewRig(t, server.Config{Protocol: settings.ProtocolUpstream, AgentKeepalive: every, KeepaliveTimeout: answerTime})
		p := tunneltest.NewProxy(t, r.AgentTLS)
		r.StartAgent(agent.Config{}, p.Addr)
		return agents{func() float64 {
			return tunneltest.Metric(r.Metrics.Registry, `fairlead_tunnel_server_links{protocol="upstream"}`)
		}, p}
	}
	short, long := start(keepalive), start(time.Hour)
	time.Sleep(2*keepalive + answerTime) // silent, and answers pings
	for _, a := range []agents{short, long} {
		if a.links() != 1 {
			t.Fatal("an agent that answers is given up")
		}
		a.proxy.Freeze(true)
		a.proxy.Refuse(true)
	}
	tunneltest.Eventually(t, tunneltest.Patience, "the agent is given up", func() bool { return short.links() == 0 })
	time.Sleep(keepalive) // the other one answers nothing for longer
	if long.links() != 1 {
		t.Error("an agent is given up before the keepalive time")
	}
}

// TestFrontendKeepalive checks that the server gives up a gRPC client that answers
// nothing after the keepalive time and the keepalive timeout, and not before.
func TestFrontendKeepalive(t *testing.T) {
	t.Parallel()
	type client struct {
		rig   *tunneltest.Rig
		proxy *tunneltest.Proxy
		conn  net.Conn
	}
	start := func(every time.Duration) client {
		r := tunneltest.NewRig(t, server.Config{FrontendKeepalive: every, KeepaliveTimeout: answerTime})
		r.StartAgent(agent.Config{}, "")
		frontend, _ := r.FrontendsTLS()
		cfg, err := r.AgentTLSConfig()()
		if err != nil {
			t.Fatal(err)
		}
		p := tunneltest.NewProxy(t, frontend)
		return client{r, p, tunneltest.MustDial(t, tunneltest.GRPCTLS(p.Addr, cfg), tunneltest.Target(t, tunneltest.Echo))}
	}
	short, long := start(keepalive), start(time.Hour)
	time.Sleep(2*keepalive + answerTime) // silent, and answers pings
	for _, c := range []client{short, long} {
		if _, err := c.conn.Write([]byte{1}); err != nil {
			t.Fatalf("a client that answers pings: %v", err)
		}
		if _, err := io.ReadFull(c.conn, make([]byte, 1)); err != nil {
			t.Fatalf("a client that answers pings: %v", err)
		}
		c.proxy.Freeze(true)
		defer c.proxy.Freeze(false) // before the client closes, so that the server sees the close
	}
	tunneltest.Eventually(t, tunneltest.Patience, "the client is given up", func() bool { return short.rig.Server.Established() == 0 })
	time.Sleep(keepalive) // the other one answers nothing for longer
	if long.rig.Server.Established() != 1 {
		t.Error("a client is given up before the keepalive time")
	}
}
