// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestBlockedConnections: connections on which one side does not take what the other
// sends are counted while that lasts.
func TestBlockedConnections(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"grpc", "http-connect"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := NewRig(t, server.Config{})
			r.StartAgent(agent.Config{}, "")
			p := Pair{Dial: GRPC(r.GRPC)}
			if mode == "http-connect" {
				p.Dial = Connect(r.Connect)
			}
			full := func(method string) float64 {
				return Metric(r.Metrics.Registry, fmt.Sprintf("konnectivity_network_proxy_server_full_receive_channels{service_method=%q}", method))
			}
			wantFull := func(t *testing.T, what string, up, down float64) {
				t.Helper()
				Eventually(t, Patience, what, func() bool { return full("Proxy") == up && full("Connect") == down })
			}
			MustDial(t, p.Dial, Target(t, Echo))
			wantFull(t, "none is blocked", 0, 0)
			t.Run("clients do not read", func(t *testing.T) {
				stallClient(t, p)
				wantFull(t, "the agent's data waits", 0, 10)
			})
			wantFull(t, "clients are gone", 0, 0)
			t.Run("destinations do not read", func(t *testing.T) {
				stallTarget(t, p)
				wantFull(t, "the clients' data waits", 10, 0)
			})
			wantFull(t, "destinations are gone", 0, 0)
		})
	}
}

// TestFrontendWrites: what is written to clients is counted with the time that it took
// until the client's side had it.
func TestFrontendWrites(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"grpc", "http-connect"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := NewRig(t, server.Config{})
			r.StartAgent(agent.Config{}, "")
			dial := GRPC(r.GRPC)
			if mode == "http-connect" {
				dial = Connect(r.Connect)
			}
			const name = "konnectivity_network_proxy_server_frontend_write_duration_seconds"
			writes := func() float64 { return Metric(r.Metrics.Registry, name+"_count") }
			late := func() float64 { return writes() - Metric(r.Metrics.Registry, name+`_bucket{le="0.1"}`) }
			c := MustDial(t, dial, Target(t, Echo))
			for i := range 10 {
				before := writes()
				_, _ = c.Write([]byte{byte(i)})
				if _, err := readFull(c, make([]byte, 1), Patience); err != nil {
					t.Fatal(err)
				}
				Eventually(t, Patience, "a write is counted", func() bool { return writes() > before })
			}
			const size = 4 << 20
			c = mustDialLeave(t, dial, Target(t, endless))
			_, _ = c.Write([]byte{1})
			Eventually(t, Patience, "the client's side takes no more", func() bool {
				return Metric(r.Metrics.Registry, `konnectivity_network_proxy_server_full_receive_channels{service_method="Connect"}`) == 1
			})
			// The client's side may still take some bytes after it was full. Each further read ends a write that has waited.
			before := late()
			Eventually(t, Patience, "the write that waited is counted as late", func() bool {
				time.Sleep(150 * time.Millisecond) // later than the bucket of 100 ms
				if _, err := readFull(c, make([]byte, size), Patience); err != nil {
					t.Fatal(err)
				}
				return late() > before
			})
		})
	}
}
