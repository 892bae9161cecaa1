// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// rough is what is done to a server and its two agents while transfers run.
type rough struct {
	*pair
	tr     *tunneltest.Traffic
	second *daemontest.Process
}

// TestRough: SIGKILL and SIGSTOP of agents and servers while transfers run in both
// directions. Those that ended with success were whole, others were told so, new
// dials succeed in the time that docs/tunnel.md has, and nothing stays.
// It observes KON-35 and KON-68 of docs/requirements.md.
func TestRough(t *testing.T) {
	testutil.Full(t, "kills and freezes programs")
	for name, c := range faults {
		for _, mode := range modes {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				c.try(t, mode, 1)
			})
		}
	}
}

// TestRoughLinks is TestRough with several links of each agent, in the mode in which it is
// the tunnel that says how a connection ended.
func TestRoughLinks(t *testing.T) {
	testutil.Full(t, "kills and freezes programs")
	for _, name := range []string{"agent killed", "server killed", "agent stops for a while", "agent frozen"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults[name].try(t, "http-connect", 3)
		})
	}
}

// fault is done to a pair, and transfers have to break by it or must not.
type fault struct {
	do  func(r *rough, t *testing.T)
	cut bool
}

var faults = map[string]fault{
	"agent killed":  {(*rough).killAgents, true},
	"server killed": {(*rough).killServer, true},
	"agent stops for a while": {func(r *rough, t *testing.T) {
		r.stopFor(t, r.agent, 3*time.Second)
	}, false},
	"server stops for a while": {func(r *rough, t *testing.T) {
		r.stopFor(t, r.server, 3*time.Second)
	}, false},
	"agent frozen":  {(*rough).freezeAgent, true},
	"server frozen": {(*rough).freezeServer, true},
}

func (f fault) try(t *testing.T, mode string, links int) {
	p, second, dial, wrap := trafficPair(t, mode, links)
	r := &rough{pair: p, second: second, tr: tunneltest.StartTraffic(t, dial, wrap)}
	f.do(r, t)
	r.tr.Progress()
	r.tr.End()
	if n := r.tr.Cut(); (n > 0) != f.cut {
		t.Errorf("%d transfers were cut, want any: %v", n, f.cut)
	}
	r.nothingLeft(t)
}

// mustDial wants the first dial to succeed, and to carry.
func (r *rough) mustDial(t *testing.T) {
	t.Helper()
	start := time.Now()
	ctx, cancel := timeout(t, startBound)
	defer cancel()
	if err := r.tr.Once(ctx); err != nil {
		t.Errorf("the first transfer afterwards: %v", err)
	}
	t.Logf("the first transfer afterwards took %v", time.Since(start).Round(time.Millisecond))
}

func (r *rough) signal(t *testing.T, p *daemontest.Process, s syscall.Signal) {
	t.Helper()
	if err := p.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// killAgents kills agents that carry transfers; dials go to the one that is left.
func (r *rough) killAgents(t *testing.T) {
	r.tr.AgentKilled.Store(true)
	for range 4 {
		var killed *daemontest.Process
		r.tr.Midway(func() {
			killed = r.carrier(t)
			r.tr.Down.Store(true) // a dial that the agent had is lost with it
			r.signal(t, killed, syscall.SIGKILL)
		})
		daemontest.Eventually(t, startBound, backends(r.pair, 1))
		r.tr.Down.Store(false)
		r.mustDial(t)
		if killed == r.agent {
			r.agent = r.second
		}
		r.second = r.startAgent()
		daemontest.Eventually(t, startBound, backends(r.pair, 2))
	}
}

// killServer kills the only server and starts it again; the first dial waits for an
// agent, --agent-wait.
func (r *rough) killServer(t *testing.T) {
	for range 3 {
		r.tr.Midway(func() {
			r.tr.Down.Store(true)
			r.signal(t, r.server, syscall.SIGKILL)
		})
		r.server.ExitCode(t, promptly)
		r.server = r.startServer()
		daemontest.Eventually(t, startBound, func() error { return get(r.serverHealth + "/healthz") })
		r.mustDial(t)
		r.tr.Down.Store(false)
	}
}

// stopFor stops a process for less time than it takes to be given up: everything goes
// on afterwards.
func (r *rough) stopFor(t *testing.T, p *daemontest.Process, d time.Duration) {
	r.tr.Midway(func() { p.Freeze(t) })
	time.Sleep(d) // how long it is stopped
	r.signal(t, p, syscall.SIGCONT)
	r.mustDial(t)
}

// freezeAgent stops an agent that carries transfers until it is given up, and then has it go on.
func (r *rough) freezeAgent(t *testing.T) {
	var frozen *daemontest.Process
	r.tr.Midway(func() {
		frozen = r.carrier(t)
		frozen.Freeze(t)
	})
	r.mustDial(t)
	daemontest.Eventually(t, 40*time.Second, backends(r.pair, 1)) // twice as long, for a busy machine
	r.mustDial(t)
	r.signal(t, frozen, syscall.SIGCONT)
	daemontest.Eventually(t, startBound, backends(r.pair, 2))
	r.mustDial(t)
}

// carrier returns the first agent if it carries a transfer, else the second. Each transfer takes one of them by chance.
func (r *rough) carrier(t *testing.T) *daemontest.Process {
	t.Helper()
	ofSecond, err := metric(r.agentHealth, "konnectivity_network_proxy_agent_open_endpoint_connections")
	if err != nil {
		t.Fatal(err)
	}
	if float64(r.tr.Open.Load()) > ofSecond {
		return r.agent
	}
	return r.second
}

// freezeServer stops the server until the agents have given it up, and then has it go on.
func (r *rough) freezeServer(t *testing.T) {
	r.tr.Midway(func() {
		r.tr.Down.Store(true)
		r.server.Freeze(t)
	})
	daemontest.Eventually(t, 40*time.Second, func() error {
		if get(r.agentHealth+"/readyz") == nil {
			return fmt.Errorf("the agent is ready")
		}
		return nil
	})
	r.signal(t, r.server, syscall.SIGCONT)
	r.mustDial(t)
	r.tr.Down.Store(false)
}

// nothingLeft wants server, agents and destination to have forgotten all connections.
func (r *rough) nothingLeft(t *testing.T) {
	t.Helper()
	daemontest.Eventually(t, tunneltest.Patience, func() error {
		held, err := metric(r.serverHealth, "konnectivity_network_proxy_server_established_connections")
		if err != nil {
			return err
		}
		open, err := metric(r.agentHealth, "konnectivity_network_proxy_agent_open_endpoint_connections")
		if err != nil {
			return err
		}
		if n := r.tr.Open.Load(); held+open > 0 || n > 0 {
			return fmt.Errorf("the server has %v connections, the last agent %v, the destination %d", held, open, n)
		}
		return nil
	})
}
