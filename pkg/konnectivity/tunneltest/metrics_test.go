// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"fmt"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestPacketCounters checks that packets between server and agent are counted in
// the metrics with upstream's names, whatever the protocol is, and that both
// sides count the same.
func TestPacketCounters(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			t.Parallel()
			r := NewRig(t, server.Config{Protocol: Only(upstreamOnly)})
			a := r.StartAgent(agent.Config{}, "")
			addr := Target(t, Echo)
			const dials, writes = 3, 5
			for range dials {
				c := MustDial(t, GRPC(r.GRPC), addr)
				for range writes { // each write waits for its echo, so each is one packet
					if _, err := c.Write([]byte("x")); err != nil {
						t.Fatal(err)
					}
					if _, err := readFull(c, make([]byte, 1), Patience); err != nil {
						t.Fatal(err)
					}
				}
				c.Close()
			}
			_, _ = GRPC(r.GRPC)(t.Context(), "127.0.0.1:1") // refused: an answer without a connection
			Eventually(t, Patience, "connections are over", func() bool { return r.Server.Established() == 0 && a.Connections() == 0 })
			Eventually(t, Patience, "no client is counted", func() bool {
				return Metric(r.Metrics.Registry, `konnectivity_network_proxy_server_grpc_connections{service_method="Proxy"}`) == 0
			})
			for series, least := range map[string]float64{
				`segment="to_agent",packet_type="DIAL_REQ"`: dials + 1, `segment="from_agent",packet_type="DIAL_RSP"`: dials + 1,
				`segment="to_agent",packet_type="DATA"`: dials * writes, `segment="from_agent",packet_type="DATA"`: dials * writes,
				`segment="to_agent",packet_type="CLOSE_REQ"`: dials, `segment="from_agent",packet_type="CLOSE_RSP"`: dials,
			} {
				var s, ag float64
				Eventually(t, Patience, series+" is the same on both sides", func() bool {
					s = Metric(r.Metrics.Registry, "konnectivity_network_proxy_server_stream_packets_total{"+series+"}")
					ag = Metric(a.Metrics.Registry, "konnectivity_network_proxy_agent_stream_packets_total{"+series+"}")
					return s == ag && s >= least
				})
				if s > 3*least {
					t.Errorf("%s is %v, want about %v", series, s, least)
				}
			}
		})
	}
}
