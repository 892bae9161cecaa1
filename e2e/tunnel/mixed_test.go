// SPDX-License-Identifier: Apache-2.0

// Package tunnel tests the tunnel's programs, also with upstream's programs on the
// other side.
package tunnel

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestMixedPairs runs the suite with one Fairlead program and one upstream program,
// with gRPC and with HTTP CONNECT.
// It observes OLD-30 of docs/requirements.md.
func TestMixedPairs(t *testing.T) {
	for _, c := range []struct{ server, agent release }{{ours, v0_34_0}, {ours, v0_36_0}, {v0_34_0, ours}, {v0_36_0, ours}, {ours, ours}} {
		for _, mode := range modes {
			t.Run(c.server.String()+" server, "+c.agent.String()+" agent/"+mode, func(t *testing.T) {
				p := startPair(t, options{mode: mode, server: c.server, agent: c.agent})
				own := c.server == ours && c.agent == ours
				want := tunneltest.Pair{Dial: p.dialer(), Failure: "connection refused", Overtakes: c.server != ours,
					SlowClients: c.server == ours, SlowTargets: c.agent == ours, HalfClose: own && mode == "http-connect"}
				if mode == "http-connect" {
					want.Failure = "502"
				}
				if c.agent != ours {
					want.MayLose = 5 // on a busy machine
				}
				tunneltest.Run(t, want)
			})
		}
	}
}

// TestMixedExit checks that, with upstream's program on the other side and a
// connection open, Fairlead's program exits as promptly as with its own counterpart.
func TestMixedExit(t *testing.T) {
	for _, mode := range modes {
		t.Run("server/"+mode, func(t *testing.T) {
			p := startPair(t, options{mode: mode, agent: v0_36_0})
			p.dial(t)
			p.server.Terminate(t)
			wantExit(t, p.server, promptly)
		})
		t.Run("agent/"+mode, func(t *testing.T) {
			p := startPair(t, options{mode: mode, server: v0_36_0, agentEnv: []string{"FAIRLEAD_DRAIN_TIMEOUT=1s"}})
			conn := p.dial(t)
			p.agent.Terminate(t)
			mustCarry(t, conn, 500*time.Millisecond)
			wantExit(t, p.agent, promptly)
		})
	}
}

// TestMixedChurn checks that clients that disconnect during the dial leave nothing in
// Fairlead's server, although upstream's agent keeps connections of whose end it was
// not notified.
func TestMixedChurn(t *testing.T) {
	p := startPair(t, options{mode: "http-connect", agent: v0_36_0})
	p.dial(t)
	open := func() int { return descriptors(t, p.server) }
	if left := churn(t, p, 300, open, tunneltest.Patience); left > 0 {
		t.Errorf("%d descriptors are left in our server", left)
	}
}

// TestMixedFirstClose checks that Fairlead's agent keeps nothing of connections that
// their destinations close first, in one direction or both, although upstream's
// server does not always report that it is done. Nothing delays the agent's exit.
func TestMixedFirstClose(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			p := startPair(t, options{mode: mode, server: v0_36_0, agentEnv: []string{"FAIRLEAD_DRAIN_TIMEOUT=1m"}})
			before := descriptors(t, p.agent)
			const bytes = 100_000
			for _, half := range []bool{false, true} {
				addr := tunneltest.Target(t, func(c net.Conn) {
					_, _ = io.ReadFull(c, make([]byte, 1))
					_, _ = c.Write(make([]byte, bytes))
					if half {
						_ = c.(*net.TCPConn).CloseWrite()
						_, _ = io.Copy(io.Discard, c) // until the agent closes
					}
				})
				for range 5 {
					conn, err := p.dialer()(t.Context(), addr)
					if err != nil {
						t.Fatal(err)
					}
					_, _ = conn.Write([]byte{1})
					if got, err := io.ReadAll(conn); err != nil || len(got) != bytes {
						t.Errorf("the client got %d of %d bytes, %v", len(got), bytes, err)
					}
					_ = conn.Close()
				}
				daemontest.Eventually(t, 20*time.Second, func() error { // the kernel gives up after a minute
					if n := descriptors(t, p.agent); n > before {
						return fmt.Errorf("the agent has %d descriptors, %d before", n, before)
					}
					return nil
				})
			}
			p.agent.Terminate(t)
			wantExit(t, p.agent, promptly)
		})
	}
}
