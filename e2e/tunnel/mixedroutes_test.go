// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// mixedPairs are the pairs of one Fairlead program and one upstream program.
var mixedPairs = []struct{ server, agent release }{{ours, v0_34_0}, {ours, v0_36_0}, {v0_34_0, ours}, {v0_36_0, ours}}

// routed is an agent with its identifiers and the destination that the server should
// route to it.
type routed struct {
	identifiers string
	health      string
	destination string // empty if no dial should go to it
}

// TestMixedStrategies checks that, with upstream's program on the other side, a dial
// goes to the agent that claims the destination, otherwise to the agent that claims the
// default route, and to no other agent.
// It observes KON-51 and KON-78 of docs/requirements.md.
func TestMixedStrategies(t *testing.T) {
	for _, c := range mixedPairs {
		for _, mode := range modes {
			t.Run(c.server.String()+" server, "+c.agent.String()+" agent/"+mode, func(t *testing.T) {
				flags := []string{"--proxy-strategies=destHost,defaultRoute"}
				if c.server == ours {
					flags = append(flags, "--agent-wait=0")
				}
				p := startPair(t, options{mode: mode, server: c.server, agent: c.agent, serverFlags: flags})
				_, port, _ := net.SplitHostPort(tunneltest.TargetAt(t, "0.0.0.0:0", tunneltest.Echo))
				agents := []*routed{
					{identifiers: "none", health: p.agentHealth}, // the first one claims nothing
					{identifiers: "ipv4=127.0.0.1&ipv4=127.0.0.3", destination: "127.0.0.1"},
					{identifiers: "host=localhost", destination: "localhost"},
					{identifiers: "default-route=true", destination: "127.0.0.2"},
				}
				for _, a := range agents[1:] {
					if c, err := p.reach(t, net.JoinHostPort(a.destination, port)); err == nil {
						_ = c.Close()
						t.Errorf("a dial to %s succeeds before there is an agent for it", a.destination)
					}
					_, a.health = p.launchAgent("--agent-identifiers=" + a.identifiers)
					daemontest.Eventually(t, startBound, func() error { // the agent may be ready some moments before its server knows it
						c, err := p.reach(t, net.JoinHostPort(a.destination, port))
						if err == nil {
							_ = c.Close()
						}
						return err
					})
				}
				for _, a := range agents[1:] {
					p.wantRouted(t, agents, a, net.JoinHostPort(a.destination, port))
				}
				p.wantRouted(t, agents, agents[1], net.JoinHostPort("127.0.0.3", port))
			})
		}
	}
}

// reach dials a destination and checks that it answers.
func (p *pair) reach(t *testing.T, destination string) (net.Conn, error) {
	t.Helper()
	ctx, cancel := timeout(t, startBound)
	defer cancel()
	conn, err := p.dialer()(ctx, destination)
	if err == nil {
		err = roundTrip(conn)
	}
	if ctx.Err() != nil {
		t.Errorf("a dial to %s is not answered: %v", destination, context.Cause(ctx))
	}
	return conn, err
}

// wantRouted checks that several connections to a destination all go through one agent.
func (p *pair) wantRouted(t *testing.T, agents []*routed, to *routed, destination string) {
	t.Helper()
	const n = 12
	conns := make([]net.Conn, 0, n)
	for range n {
		conn, err := p.reach(t, destination)
		if err != nil {
			t.Fatalf("dial to %s: %v", destination, err)
		}
		conns = append(conns, conn)
	}
	wantOpen(t, agents, to, n)
	for _, conn := range conns {
		_ = conn.Close()
	}
	wantOpen(t, agents, to, 0)
}

// wantOpen checks that one agent has n connections and the others have none.
func wantOpen(t *testing.T, agents []*routed, which *routed, n int) {
	t.Helper()
	daemontest.Eventually(t, 20*time.Second, func() error {
		for _, a := range agents {
			want := 0
			if a == which {
				want = n
			}
			got, err := metric(a.health, "konnectivity_network_proxy_agent_open_endpoint_connections")
			if err != nil && !errors.Is(err, errNoSeries) { // upstream's agent has no such series before its first connection
				return err
			}
			if got != float64(want) {
				return fmt.Errorf("the agent with %s has %v connections, want %d", a.identifiers, got, want)
			}
		}
		return nil
	})
}
