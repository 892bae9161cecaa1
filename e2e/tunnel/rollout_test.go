// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

const perSecond = 50 // new connections per second in tests that change something under load

// TestAgentRollout replaces the only agent several times, as a Deployment with
// maxUnavailable 0 does. No new connection fails (upstream #566), and no transfer is cut.
func TestAgentRollout(t *testing.T) {
	for _, mode := range modes {
		for _, links := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, links %d", mode, links), func(t *testing.T) {
				if links > 1 {
					testutil.Full(t, "agents with one link are tried")
				}
				agentRollout(t, options{mode: mode, links: links})
			})
		}
	}
}

func agentRollout(t *testing.T, o options) {
	p := startPair(t, o)
	daemontest.Eventually(t, startBound, backends(p, 1))
	load, tr := tunneltest.StartLoad(t, p.dialer(), p.echo, perSecond), tunneltest.StartTraffic(t, p.dialer(), nil)
	for range 5 {
		load.MoreDials(t, perSecond/4)
		next := p.startAgent()
		p.agent.Terminate(t)
		wantExit(t, p.agent, 10*time.Second)
		p.agent = next
	}
	tr.Progress()
	load.NoneFailed(t)
	tr.NoneCut()
}

// TestAgentRestart replaces the only agent by one that starts after it has exited, as a
// DaemonSet with maxUnavailable 1 does: dials wait for the new agent (--agent-wait).
func TestAgentRestart(t *testing.T) {
	testutil.Full(t, "restarts agents under load")
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			p := startPair(t, options{mode: mode})
			load := tunneltest.StartLoad(t, p.dialer(), p.echo, perSecond)
			for range 3 {
				load.MoreDials(t, perSecond/4)
				p.agent.Terminate(t)
				wantExit(t, p.agent, 10*time.Second)
				p.agent = p.startAgent()
			}
			load.NoneFailed(t)
		})
	}
}

// TestServerRestart replaces the only server. With gRPC, kube-apiserver's client tries to
// connect for 30 s. With the graceful shutdown timeout that the bundle sets, no new
// connection fails and no transfer is cut.
// It observes KON-41 and KON-85 of docs/requirements.md.
func TestServerRestart(t *testing.T) {
	testutil.Full(t, "restarts servers under load")
	for _, links := range []int{1, 3} {
		t.Run(fmt.Sprintf("links %d", links), func(t *testing.T) { serverRestart(t, links) })
	}
}

func serverRestart(t *testing.T, links int) {
	p := startPair(t, options{mode: "grpc", links: links, serverEnv: []string{settings.DrainTimeout + "=5s"}})
	load, tr := tunneltest.StartLoad(t, p.dialer(), p.echo, perSecond), tunneltest.StartTraffic(t, p.dialer(), nil)
	for range 3 {
		load.MoreDials(t, perSecond/2)
		p.restartServer(t, 1, 0)
	}
	tr.Progress()
	load.NoneFailed(t)
	tr.NoneCut()
}

// TestServerRestartConnect checks a server restart with HTTP CONNECT. kube-apiserver's
// HTTP CONNECT client does not retry, so dials fail while there is no socket. No other
// dial fails, and no accepted connection is lost. All agents reconnect soon, even if the
// server was away for so long that they have tried in vain several times.
func TestServerRestartConnect(t *testing.T) {
	testutil.Full(t, "restarts servers under load")
	p := startPair(t, options{mode: "http-connect", serverFlags: []string{"--graceful-shutdown-timeout=5s"}})
	const agents = 4
	for range agents - 1 {
		p.startAgent()
	}
	daemontest.Eventually(t, startBound, backends(p, agents))
	load, tr := tunneltest.StartLoad(t, p.dialer(), p.echo, perSecond), tunneltest.StartTraffic(t, p.dialer(), nil)
	for _, away := range []time.Duration{0, 0, 3 * time.Second} {
		load.MoreDials(t, perSecond/2)
		tr.Down.Store(true)
		p.restartServer(t, agents, away)
		tr.Down.Store(false)
	}
	tr.Progress()
	tr.NoneCut()
	dials, _, errs := load.Stop()
	t.Logf("%d of %d dials found no socket", len(errs), dials)
	wantNoSocket(t, errs)
}

// wantNoSocket checks that dials failed only because there was no socket.
func wantNoSocket(t *testing.T, errs []error) {
	t.Helper()
	for _, err := range errs {
		if !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a dial failed otherwise: %v", err)
		}
	}
}

// backBound is the time within which agents must reconnect when their server returns
// after some seconds. They retry after one second, --sync-interval, and half as much
// longer each time. An agent whose waits grow faster, up to --sync-interval-cap, takes
// ten seconds.
const backBound = 8 * time.Second

// restartServer lets the server drain, starts it again after a while and checks that its
// agents reconnect in time.
func (p *pair) restartServer(t *testing.T, agents int, away time.Duration) {
	t.Helper()
	p.server.Terminate(t)
	wantExit(t, p.server, 10*time.Second)
	time.Sleep(away) // how long the server is away
	p.server = p.startServer()
	daemontest.Eventually(t, startBound, func() error { return get(p.serverHealth + "/healthz") })
	start := time.Now()
	daemontest.Eventually(t, startBound, backends(p, agents))
	took := time.Since(start)
	t.Logf("%d agents were back after %v", agents, took.Round(time.Millisecond))
	if took > backBound {
		t.Errorf("%d agents were back after %v, want at most %v", agents, took, backBound)
	}
	daemontest.Eventually(t, startBound, func() error { return get(p.serverHealth + "/readyz") })
}

// TestFrozenAgent stops one of two agents with SIGSTOP. No later dial fails, and the
// server gives the agent up within 20 s, or an upstream agent 20 s after
// --keepalive-time.
func TestFrozenAgent(t *testing.T) {
	testutil.Full(t, "waits until a frozen agent is given up")
	for agent, flags := range map[release][]string{ours: nil, v0_36_0: {"--keepalive-time=2s"}} {
		t.Run("agent "+agent.String(), func(t *testing.T) {
			t.Parallel()
			p := startPair(t, options{mode: "http-connect", agent: agent, serverFlags: flags})
			p.startAgent()
			daemontest.Eventually(t, startBound, backends(p, 2))
			load := tunneltest.StartLoad(t, p.dialer(), p.echo, perSecond)
			load.MoreDials(t, perSecond/4)
			p.agent.Freeze(t)
			frozen := time.Now()
			daemontest.Eventually(t, 40*time.Second, backends(p, 1)) // twice as long, because the machine may be busy
			t.Logf("given up after %v", time.Since(frozen).Round(time.Millisecond))
			load.NoDialFailed(t) // connections through the agent are lost when it stops
		})
	}
}

// backends checks that the server has n agents with all their links.
func backends(p *pair, n int) func() error {
	counts := map[string]int{"konnectivity_network_proxy_server_ready_backend_connections": n}
	if p.links > 1 {
		counts[`fairlead_tunnel_server_links{protocol="fairlead"}`] = n * p.links
	}
	return func() error {
		for name, want := range counts {
			if v, err := metric(p.serverHealth, name); err != nil || v != float64(want) {
				return errors.Join(err, fmt.Errorf("%s is %v, want %d", name, v, want))
			}
		}
		return nil
	}
}

// errNoSeries reports that a program has no series with that name and those labels.
var errNoSeries = errors.New("no series")

// metric returns the value of a series with exactly these labels.
func metric(url, series string) (float64, error) {
	text, err := fetch(url + "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("%w %s", errNoSeries, series)
}
