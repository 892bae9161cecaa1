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
	const soon = 8 * time.Second // connecting gives up after 20 s
	r := NewRig(t, server.Config{ServerCount: 2})
	p := NewProxy(t, r.AgentTLS)
	_, port, err := net.SplitHostPort(p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	hole, err := net.Listen("tcp", net.JoinHostPort("127.0.0.2", port)) // the kernel accepts connections, and no process reads from them
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	tried := make(chan net.Conn)
	go func() {
		c, _ := hole.Accept()
		tried <- c
	}()
	lookup := func(context.Context, string) ([]string, error) { return []string{"127.0.0.1", "127.0.0.2"}, nil }
	start := time.Now()
	a := r.StartAgent(agent.Config{Lookup: lookup}, net.JoinHostPort("servers.test", port))
	if d := time.Since(start); d > soon {
		t.Errorf("the first link took %v", d)
	}
	if c := <-tried; c != nil {
		defer c.Close()
	}
	p.Refuse(true)
	p.Cut()
	Eventually(t, Patience, "the link is lost", func() bool { return !a.Ready() })
	time.Sleep(time.Second)
	p.Refuse(false)
	start = time.Now()
	Eventually(t, Patience, "the agent is back", a.Ready)
	took := time.Since(start)
	t.Logf("back after %v", took.Round(time.Millisecond))
	if took > soon {
		t.Errorf("back after %v", took)
	}
}

// TestDeadBackend checks that, when one address leads to several servers, a server that
// does not answer does not delay the return of a link to another.
func TestDeadBackend(t *testing.T) {
	r := NewRig(t, server.Config{ServerCount: 2})
	p := NewProxy(t, r.AgentTLS)
	a := r.StartAgent(agent.Config{}, p.Addr)
	hole, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, and no process reads from them
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	p.To(hole.Addr().String())
	Eventually(t, Patience, "the other server is looked for", func() bool { return p.Carried() > 1 })
	time.Sleep(2 * time.Second) // whatever else the search does meanwhile
	p.To(r.AgentTLS)
	p.CutOne()
	stuck, start := p.Carried(), time.Now()
	Eventually(t, Patience, "the agent is back", func() bool { return p.Carried() > stuck && a.Ready() })
	if d := time.Since(start); d > 8*time.Second { // connecting gives up after 20 s
		t.Errorf("back after %v", d)
	}
}
