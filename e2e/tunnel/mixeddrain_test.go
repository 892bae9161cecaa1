// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestMixedAgentDrain: while agents of upstream's drain next to others, one after the
// other, our server gives them no new connection and carries those that they have: no
// dial fails and no transfer is cut.
// It observes KON-76 of docs/requirements.md.
func TestMixedAgentDrain(t *testing.T) {
	testutil.Full(t, "drains programs of all releases")
	for _, agent := range []release{v0_34_0, v0_36_0} {
		for _, mode := range modes {
			t.Run(agent.String()+" agent/"+mode, func(t *testing.T) {
				p := startPair(t, options{mode: mode, agent: agent})
				load, tr := tunneltest.StartLoad(t, p.dialer(), p.echo, perSecond), tunneltest.StartTraffic(t, p.dialer(), nil)
				for range 2 {
					draining, health := p.agent, p.agentHealth
					p.agent = p.startAgent()
					daemontest.Eventually(t, startBound, backends(p, 2))
					load.MoreDials(t, perSecond/4)
					draining.Terminate(t) // it tells its server when it gets the next packet, and stays
					daemontest.Eventually(t, startBound, func() error { return quiet(health, load) })
					if err := draining.Signal(os.Kill); err != nil {
						t.Fatal(err)
					}
					daemontest.Eventually(t, startBound, backends(p, 1))
				}
				tr.Progress()
				load.NoneFailed(t)
				tr.NoneCut()
			})
		}
	}
}

// quiet wants an agent without connections to be given none while others are dialed.
func quiet(health string, load *tunneltest.Load) error {
	const many = 20
	dials := func() (float64, error) {
		return metric(health, "konnectivity_network_proxy_agent_dial_duration_seconds_count")
	}
	before, err := dials()
	if err != nil {
		return err
	}
	for n := load.Dials(); load.Dials() < n+many; {
		time.Sleep(10 * time.Millisecond) // a poll
	}
	after, err := dials()
	if err != nil {
		return err
	}
	open, err := metric(health, "konnectivity_network_proxy_agent_open_endpoint_connections")
	if err == nil && (open > 0 || after > before) {
		err = fmt.Errorf("the agent that drains has %v connections and got %v of %d dials", open, after-before, many)
	}
	return err
}

// TestMixedAgentRollout replaces our agent at a server of upstream's; no dial fails and
// no transfer is cut. v0.34.0 does not heed that an agent drains and dials there until
// it has gone, which nothing that our agent could send would change.
func TestMixedAgentRollout(t *testing.T) {
	testutil.Full(t, "replaces agents under load")
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) { agentRollout(t, options{mode: mode, server: v0_36_0}) })
	}
}

// TestMixedServerRestart replaces our server while agents of upstream's are connected to
// it. With GRPC no dial fails, with HTTP CONNECT those that find no socket, and no
// transfer is cut if the agents do not leave before the server does, as they do at their
// next probe.
func TestMixedServerRestart(t *testing.T) {
	testutil.Full(t, "restarts servers under load")
	for _, agent := range []release{v0_34_0, v0_36_0} {
		for _, mode := range modes {
			t.Run(agent.String()+" agent/"+mode, func(t *testing.T) {
				p := startPair(t, options{mode: mode, agent: agent, serverFlags: []string{"--graceful-shutdown-timeout=5s"},
					agentFlags: []string{"--probe-interval=1m"}})
				p.startAgent()
				daemontest.Eventually(t, startBound, backends(p, 2))
				load, tr := tunneltest.StartLoad(t, p.dialer(), p.echo, perSecond), tunneltest.StartTraffic(t, p.dialer(), nil)
				for range 2 {
					load.MoreDials(t, perSecond/4)
					tr.Down.Store(mode == "http-connect")
					p.restartServer(t, 2, 0)
					tr.Down.Store(false)
				}
				tr.Progress()
				tr.NoneCut()
				if mode == "grpc" {
					load.NoneFailed(t)
					return
				}
				_, _, errs := load.Stop()
				wantNoSocket(t, errs)
			})
		}
	}
}

// TestMixedServerDrain: our agent carries the connections of a server of upstream's that
// drains. That its dials succeed is not in our hands: it takes none, and the next one
// refuses them until an agent is there. v0.34.0 knows no drain.
func TestMixedServerDrain(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			p := startPair(t, options{mode: mode, server: v0_36_0, serverFlags: []string{"--graceful-shutdown-timeout=3s"}})
			conn := p.dial(t)
			p.server.Terminate(t)
			mustCarry(t, conn, 2*time.Second)
			wantExit(t, p.server, 10*time.Second)
			p.server = p.startServer()
			daemontest.Eventually(t, startBound, backends(p, 1))
			p.dial(t)
		})
	}
}
