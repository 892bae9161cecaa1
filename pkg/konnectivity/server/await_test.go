// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

func TestMain(m *testing.M) {
	testutil.Parallel(8) // parallel tests wait most of the time
	testutil.VerifyNoLeaks(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// TestAllAgentsVanish: dials whose agents all go away wait for the next agent, also
// on a server that has been up for long, and with more agents gone than a dial
// asks.
func TestAllAgentsVanish(t *testing.T) {
	t.Parallel()
	r := tunneltest.NewRig(t, server.Config{AgentWait: tunneltest.Patience})
	r.Server.Age(time.Hour)
	p := tunneltest.NewProxy(t, r.AgentTLS)
	var old []*tunneltest.Agent
	for range 12 {
		old = append(old, r.StartAgent(agent.Config{}, p.Addr))
	}
	tunneltest.Eventually(t, tunneltest.Patience, "all agents are there", func() bool {
		return tunneltest.Metric(r.Metrics.Registry, `fairlead_tunnel_server_links{protocol="fairlead"}`) == 12
	})
	addr := tunneltest.Target(t, tunneltest.Echo)
	p.Freeze(true)
	var wg sync.WaitGroup
	for _, dial := range []tunneltest.Dialer{tunneltest.GRPC(r.GRPC), tunneltest.Connect(r.Connect)} {
		for range 10 {
			wg.Go(func() {
				c, err := dial(t.Context(), addr)
				if err != nil {
					t.Errorf("dial: %v", err)
					return
				}
				_ = c.Close()
			})
		}
	}
	tunneltest.Eventually(t, tunneltest.Patience, "dials are pending", func() bool { return r.Server.Established() == 20 })
	time.Sleep(2500 * time.Millisecond) // beyond the time in which any number of agents is asked: no event tells
	p.Refuse(true)
	p.Cut()
	for _, a := range old {
		a.Stop()
	}
	r.StartAgent(agent.Config{}, "")
	wg.Wait()
}

// TestNoAgentAtOnce: without --agent-wait, or on a server that has had no agent for
// long, dials fail at once.
func TestNoAgentAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ wait, age time.Duration }{"no wait": {0, 0}, "none for long": {tunneltest.Patience, time.Hour}} {
		t.Run(name, func(t *testing.T) {
			r := tunneltest.NewRig(t, server.Config{AgentWait: c.wait})
			r.Server.Age(c.age)
			start := time.Now()
			for _, dial := range []tunneltest.Dialer{tunneltest.GRPC(r.GRPC), tunneltest.Connect(r.Connect)} {
				ctx, cancel := context.WithTimeout(t.Context(), tunneltest.Patience)
				var conn net.Conn
				conn, err := dial(ctx, "127.0.0.1:1")
				cancel()
				if err == nil {
					_ = conn.Close()
					t.Error("dial without an agent succeeded")
				}
			}
			if d := time.Since(start); d > tunneltest.Patience/2 {
				t.Errorf("took %v", d)
			}
		})
	}
}

// slowCheck is a review of tokens that takes its time.
type slowCheck struct{ asked, answer chan struct{} }

func (c *slowCheck) Check(ctx context.Context, _, _ string) (string, error) {
	c.asked <- struct{}{}
	select {
	case <-c.answer:
	case <-ctx.Done():
	}
	return "", ctx.Err()
}

// TestAgentIsComing: a dial waits for an agent that is being let in, on a server that
// has had none for long.
func TestAgentIsComing(t *testing.T) {
	t.Parallel()
	for name, upstreamOnly := range map[string]bool{"link": false, "upstream": true} {
		t.Run(name, func(t *testing.T) {
			check := &slowCheck{make(chan struct{}, 10), make(chan struct{})}
			r := tunneltest.NewRig(t, server.Config{AgentWait: tunneltest.Patience, Tokens: check, Protocol: tunneltest.Only(upstreamOnly)})
			r.Server.Age(time.Hour)
			r.LaunchAgent(agent.Config{Token: func() (string, error) { return "token", nil }}, "")
			<-check.asked
			dialed := make(chan error, 1)
			go func() {
				c, err := tunneltest.Connect(r.Connect)(t.Context(), tunneltest.Target(t, tunneltest.Echo))
				if err == nil {
					_ = c.Close()
				}
				dialed <- err
			}()
			tunneltest.Eventually(t, tunneltest.Patience, "the dial waits, or has failed", func() bool { return r.Server.Established() == 1 || len(dialed) > 0 })
			time.Sleep(50 * time.Millisecond) // longer than a refusal takes
			close(check.answer)
			if err := <-dialed; err != nil {
				t.Error(err)
			}
		})
	}
}
