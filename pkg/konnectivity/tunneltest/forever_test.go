// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestSyncForever: an agent with --sync-forever finds a server that comes later behind the
// address of the one that it has, though that says that there is no other, and has no
// server twice; without, it looks for none.
func TestSyncForever(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		for _, forever := range []bool{false, true} {
			t.Run(fmt.Sprintf("forever=%v, upstream=%v", forever, upstreamOnly), func(t *testing.T) {
				t.Parallel()
				a := NewRig(t, server.Config{ServerID: "a", ServerCount: 1, Protocol: Only(upstreamOnly)})
				b := NewRig(t, server.Config{ServerID: "b", ServerCount: 1, Protocol: Only(upstreamOnly)})
				p := NewProxy(t, a.AgentTLS)
				ag := a.StartAgent(agent.Config{SyncForever: forever, TLS: tlsOf(t, a, b)}, p.Addr)
				time.Sleep(300 * time.Millisecond) // several times as long as the agent waits for its next look: it looks for none
				p.To(b.AgentTLS)
				if forever {
					Eventually(t, Patience, "the other server is found", func() bool { return b.Server.Connected(ag.ID) })
				}
				time.Sleep(300 * time.Millisecond) // in which an agent that looks for others finds one
				if b.Server.Connected(ag.ID) != forever || !a.Server.Connected(ag.ID) {
					t.Errorf("the servers that are connected: %q", ag.Servers())
				}
				// A server of upstream's protocol counts a connection before the agent learns its ID and gives it up.
				Eventually(t, Patience, "no server has two links", func() bool { return a.links(upstreamOnly) <= 1 && b.links(upstreamOnly) <= 1 })
			})
		}
	}
}

// links is the number of links that a server has.
func (r *Rig) links(upstreamOnly bool) float64 {
	protocol := map[bool]string{false: "fairlead", true: "upstream"}[upstreamOnly]
	return Metric(r.Metrics.Registry, `fairlead_tunnel_server_links{protocol="`+protocol+`"}`)
}
