// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// mixedRough is one program of ours and one of upstream's with a bad network between them, while
// transfers run.
type mixedRough struct {
	*pair
	tr    *tunneltest.Traffic
	proxy *tunneltest.Proxy
}

// TestMixedRough: with upstream's program on the other side, a network that is slow and
// passes on a byte here and a few there cuts nothing; one that breaks, and the death of an
// agent or of the server, leave each transfer whole or cut for both ends to see, and
// what comes afterwards is carried.
func TestMixedRough(t *testing.T) {
	testutil.Full(t, "kills programs of all releases")
	for _, c := range mixedPairs {
		for _, mode := range modes {
			t.Run(c.server.String()+" server, "+c.agent.String()+" agent/"+mode, func(t *testing.T) {
				t.Parallel()
				r := startMixedRough(t, options{mode: mode, server: c.server, agent: c.agent})
				r.badNetwork()
				if n := r.tr.Cut(); n > 0 {
					t.Errorf("%d transfers were cut by a slow network", n)
				}
				r.tr.Down.Store(true)
				r.brokenNetwork()
				r.deadAgent(t)
				r.deadServer(t)
				r.tr.Down.Store(false)
				r.tr.Progress()
				r.tr.End()
				if r.tr.Cut() == 0 {
					t.Error("no transfer was cut, so nothing was tried")
				}
				daemontest.Eventually(t, tunneltest.Patience, r.forgotten(c.server == ours))
			})
		}
	}
}

func startMixedRough(t *testing.T, o options) *mixedRough {
	t.Helper()
	p := startPair(t, o)
	proxy := tunneltest.NewProxy(t, p.agents)
	_, port, err := net.SplitHostPort(proxy.Addr)
	if err != nil {
		t.Fatal(err)
	}
	first := p.agent
	launch := p.launchAgent
	p.launchAgent = func(flags ...string) (*daemontest.Process, string) {
		return launch(append(flags, "--proxy-server-port="+port, "--sync-interval=300ms", "--sync-interval-cap=1s")...)
	}
	p.agent = p.startAgent()
	if err := first.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, startBound, backends(p, 1))
	// TLS inside tells an end from a cut, whatever the tunnel makes of it.
	return &mixedRough{p, tunneltest.StartTraffic(t, p.dialer(), mutual(t, p.files)), proxy}
}

func (r *mixedRough) badNetwork() {
	r.proxy.Slow(time.Millisecond)
	r.proxy.Chop(5000)
	r.tr.Progress()
	r.proxy.Slow(0)
	r.proxy.Chop(0)
	r.tr.Progress()
}

func (r *mixedRough) brokenNetwork() {
	for range 3 {
		r.tr.Midway(r.proxy.Cut)
		r.tr.Progress()
	}
}

func (r *mixedRough) deadAgent(t *testing.T) {
	r.tr.AgentKilled.Store(true)
	r.tr.Midway(func() {
		if err := r.agent.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	})
	r.agent = r.startAgent()
	r.tr.Progress()
}

func (r *mixedRough) deadServer(t *testing.T) {
	r.tr.Midway(func() {
		if err := r.server.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	})
	r.server.ExitCode(t, promptly)
	r.server = r.startServer()
	r.tr.Progress()
}

// forgotten wants the destination to have no connection any more, and our program none either.
func (r *mixedRough) forgotten(server bool) func() error {
	health, name := r.agentHealth, "konnectivity_network_proxy_agent_open_endpoint_connections"
	if server {
		health, name = r.serverHealth, "konnectivity_network_proxy_server_established_connections"
	}
	return func() error {
		n, err := metric(health, name)
		if open := r.tr.Open.Load(); err == nil && (n > 0 || open > 0) {
			err = fmt.Errorf("%s is %v, the destination has %d connections", name, n, open)
		}
		return err
	}
}
