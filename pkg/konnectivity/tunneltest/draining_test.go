// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"fmt"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// drainHolding has an agent drain that carries a connection, and returns what closes that.
func drainHolding(t *testing.T, r *Rig, a *Agent) (end func()) {
	t.Helper()
	c := MustDial(t, Connect(r.Connect), Target(t, Echo))
	ctx, cancel := context.WithCancel(t.Context())
	drained := make(chan struct{})
	go func() { defer close(drained); a.Drain(ctx) }()
	t.Cleanup(func() { cancel(); <-drained })
	return func() { _ = c.Close() }
}

// readyBackends returns two gauges of agents that take dials. They have the same meaning.
func readyBackends(r *Rig) [2]float64 {
	const prefix = "konnectivity_network_proxy_server_ready_backend"
	return [2]float64{Metric(r.Metrics.Registry, prefix+`s{proxy_strategy="default"}`), Metric(r.Metrics.Registry, prefix+"_connections")}
}

func wantReady(t *testing.T, r *Rig, n float64, when string) {
	t.Helper()
	Eventually(t, Patience, fmt.Sprintf("%v agents take dials %s", n, when), func() bool {
		ready, _ := r.Server.Ready()
		return ready == (n > 0) && readyBackends(r) == [2]float64{n, n}
	})
}

// TestDrainingAgentIsNotReady: a server whose only agent drains is not ready, though that
// is connected for as long as it carries a connection. The next agent makes it ready.
func TestDrainingAgentIsNotReady(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			t.Parallel()
			r := NewRig(t, server.Config{Protocol: Only(upstreamOnly)})
			wantReady(t, r, 0, "at first")
			a := r.StartAgent(agent.Config{}, "")
			wantReady(t, r, 1, "when one is connected")
			drainHolding(t, r, a)
			wantReady(t, r, 0, "when that drains")
			if !r.Server.Connected(a.ID) {
				t.Error("the draining agent is not connected")
			}
			r.StartAgent(agent.Config{}, "")
			wantReady(t, r, 1, "when another one is connected")
		})
	}
}

// TestBarredAgentIsNotReady: a server whose only agent has a token that was revoked is not
// ready, though the agent still carries a connection.
func TestBarredAgentIsNotReady(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			t.Parallel()
			v, said := &revocable{}, &logs{}
			r := reviewed(t, v, upstreamOnly, said)
			a := r.StartAgent(agent.Config{Token: token("out")}, "")
			_ = MustDial(t, Connect(r.Connect), Target(t, Echo)) // ends with the test
			v.revoke("out")
			Eventually(t, Patience, "the link is drained", func() bool { return expelledLinks(r, upstreamOnly) == 1 })
			wantReady(t, r, 0, "when the token is revoked")
			if !r.Server.Connected(a.ID) {
				t.Error("the agent is not connected")
			}
			r.StartAgent(agent.Config{Token: token("good")}, "")
			wantReady(t, r, 1, "when another one is connected")
		})
	}
}
