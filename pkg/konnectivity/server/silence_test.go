// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestOnlyAgentPauses: a dial whose agent is silent for some seconds, and has no other
// that fits as well next to it, is answered when the agent goes on.
func TestOnlyAgentPauses(t *testing.T) {
	t.Parallel()
	perNode := []server.Strategy{server.StrategyDestHost, server.StrategyDefault}
	for name, cfg := range map[string]server.Config{
		"no wait":  {},
		"wait":     {AgentWait: 5 * time.Second},
		"upstream": {Protocol: settings.ProtocolUpstream},
		"per node": {Strategies: perNode},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			r := tunneltest.NewRig(t, cfg)
			p := tunneltest.NewProxy(t, r.AgentTLS)
			r.StartAgent(agent.Config{AgentID: "pausing", Identifiers: "ipv4=127.0.0.1"}, p.Addr)
			var other *tunneltest.Agent
			if len(cfg.Strategies) > 1 { // it fits less well: it says nothing about the destination
				other = r.StartAgent(agent.Config{AgentID: "other"}, "")
			}
			addr := tunneltest.Target(t, tunneltest.Echo)
			p.Freeze(true)
			dialed := make(chan error, 1)
			go func() {
				c, err := tunneltest.Connect(r.Connect)(t.Context(), addr)
				if err == nil {
					_ = c.Close()
				}
				dialed <- err
			}()
			time.Sleep(4 * time.Second) // longer than any agent is asked for a sign of life
			p.Freeze(false)
			if err := <-dialed; err != nil {
				t.Error(err)
			}
			if other != nil && tunneltest.Metric(other.Metrics.Registry, "konnectivity_network_proxy_agent_dial_duration_seconds_count") > 0 {
				t.Error("the dial went to an agent of a later strategy")
			}
		})
	}
}

// TestOtherAgentTakesOver: the dials of a silent agent go to another one that fits as
// well, long before the silent one is given up.
func TestOtherAgentTakesOver(t *testing.T) {
	t.Parallel()
	for name, strategies := range map[string][]server.Strategy{"default": nil, "per node": {server.StrategyDestHost}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			r := tunneltest.NewRig(t, server.Config{Strategies: strategies, Link: link.Config{DeadAfter: 5 * tunneltest.Patience}})
			p := tunneltest.NewProxy(t, r.AgentTLS)
			r.StartAgent(agent.Config{AgentID: "silent", Identifiers: "ipv4=127.0.0.1"}, p.Addr)
			addr := tunneltest.Target(t, tunneltest.Echo)
			p.Freeze(true)
			start := time.Now()
			dialed := make(chan error, 10)
			for range cap(dialed) {
				go func() {
					c, err := tunneltest.Connect(r.Connect)(t.Context(), addr)
					if err == nil {
						_ = c.Close()
					}
					dialed <- err
				}()
			}
			tunneltest.Eventually(t, tunneltest.Patience, "dials are pending", func() bool { return r.Server.Established() == int64(cap(dialed)) })
			r.StartAgent(agent.Config{AgentID: "other", Identifiers: "ipv4=127.0.0.1"}, "")
			for range cap(dialed) {
				if err := <-dialed; err != nil {
					t.Error(err)
				}
			}
			if d := time.Since(start); d > 2*tunneltest.Patience { // the silent agent is given up later
				t.Errorf("took %v", d)
			}
		})
	}
}
