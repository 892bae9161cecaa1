// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestLostLinkReturns checks that an agent with several links to one server reconnects
// each link that it loses while the others continue.
func TestLostLinkReturns(t *testing.T) {
	t.Parallel()
	const n = 3
	r := NewRig(t, server.Config{Links: n})
	p := NewProxy(t, r.AgentTLS)
	a := r.StartAgent(agent.Config{}, p.Addr)
	whole := func() bool {
		links := Metric(r.Metrics.Registry, `fairlead_tunnel_server_links{protocol="fairlead"}`)
		return p.Carried() == n && links == n
	}
	Eventually(t, Patience, "all links are there", whole)
	for range n {
		p.CutOne()
		Eventually(t, Patience, "the lost link is back", whole)
	}
	const errors = `konnectivity_network_proxy_agent_stream_errors_total{segment="to_agent",code="Unavailable",packet_type="Unknown"}`
	if got := Metric(a.Metrics.Registry, errors); got != n {
		t.Errorf("%v links are counted as lost, %d were", got, n)
	}
}

// TestDeadAddress checks that a server address that accepts connections and never
// answers does not delay the first link through another address. It does not delay the
// return of a link that was lost there, either.
func TestDeadAddress(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{ServerCount: 2})
	p, port, hole := proxyBesideHole(t, r.AgentTLS)
	tried := make(chan net.Conn)
	go func() {
		c, _ := hole.Accept()
		tried <- c
	}()
	lookup := func(context.Context, string) ([]string, error) { return []string{"127.0.0.1", "127.0.0.2"}, nil }
	// Connecting to the dead address takes longer than StartAgent and Eventually wait.
	a := r.StartAgent(agent.Config{Lookup: lookup, ConnectTimeout: 5 * Patience}, net.JoinHostPort("servers.test", port))
	if c := <-tried; c != nil {
		defer c.Close()
	}
	p.Refuse(true)
	p.Cut()
	Eventually(t, Patience, "the link is lost", func() bool { return !a.Ready() })
	refused := p.Refused()
	Eventually(t, Patience, "the agent tries again in vain", func() bool { return p.Refused() > refused+1 })
	p.Refuse(false)
	start := time.Now()
	Eventually(t, Patience, "the agent is back", a.Ready)
	t.Logf("back after %v", time.Since(start).Round(time.Millisecond))
}

// proxyBesideHole returns a proxy and a listener on 127.0.0.2 with the same port. The kernel accepts connections to the
// listener, and no process reads from them.
func proxyBesideHole(t *testing.T, to string) (p *Proxy, port string, hole net.Listener) {
	t.Helper()
	for range 20 { // the port of a proxy can be in use at the other address
		p = NewProxy(t, to)
		_, port, _ = net.SplitHostPort(p.Addr)
		var err error
		if hole, err = net.Listen("tcp", net.JoinHostPort("127.0.0.2", port)); err == nil {
			t.Cleanup(func() { _ = hole.Close() })
			return p, port, hole
		}
	}
	t.Fatal("no port is free at two addresses")
	return nil, "", nil
}

// TestDeadBackend checks that, when one address leads to several servers, a server that
// does not answer does not delay the return of a link to another.
func TestDeadBackend(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{ServerCount: 2})
	p := NewProxy(t, r.AgentTLS)
	a := r.StartAgent(agent.Config{ConnectTimeout: 5 * Patience}, p.Addr)
	hole, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, and no process reads from them
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	p.To(hole.Addr().String())
	Eventually(t, Patience, "the other server is looked for", func() bool { return p.Carried() > 1 })
	time.Sleep(500 * time.Millisecond) // in which the search does whatever else it does
	p.To(r.AgentTLS)
	p.CutOne()
	stuck := p.Carried()
	Eventually(t, Patience, "the agent is back", func() bool { return p.Carried() > stuck && a.Ready() })
}
