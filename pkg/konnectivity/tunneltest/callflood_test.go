// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"net"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestCallFlood: a client whose calls end at once, with its own end, for their method, or
// because it gives its dials up in the moment in which it makes them, loses its connection
// and is counted. Each call costs the server a stream.
func TestCallFlood(t *testing.T) {
	t.Parallel()
	const proxy = "/ProxyService/Proxy"
	for name, call := range map[string]func(s *rogueStream, n int64){
		"end": func(s *rogueStream, _ int64) { s.Finish(nil) },
		"dial": func(s *rogueStream, n int64) {
			s.send(wire.Packet{Payload: wire.DialReq, Protocol: "tcp", Address: "127.0.0.1:1", Random: n})
			s.send(wire.Packet{Payload: wire.DialCls, Random: n})
		},
		"method": nil,
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRig(t, server.Config{AgentWait: Patience}) // a dial without an agent has no answer
			nc, err := net.Dial("unix", r.GRPC)
			if err != nil {
				t.Fatal(err)
			}
			kept, _ := openRogue(t, nc, proxy)
			kept.send(wire.Packet{Payload: wire.DialReq, Protocol: "tcp", Address: "127.0.0.1:1", Random: 1})
			cut := false
			over := func() bool {
				select {
				case err := <-kept.closed:
					t.Logf("the stream has ended: %v", err)
					cut = true
				default:
				}
				return cut
			}
			for n := int64(2); n < 5000 && !over(); n++ {
				if call == nil {
					rogueOver(kept.Conn(), "/No/Method")
				} else {
					call(rogueOver(kept.Conn(), proxy), n)
				}
			}
			Eventually(t, Patience, "the connection is cut", over)
			Eventually(t, Patience, "it is counted", func() bool {
				return Metric(r.Metrics.Registry, `fairlead_tunnel_server_bad_input_total{peer="client"}`) > 0
			})
			r.StartAgent(agent.Config{}, "")
			_ = MustDial(t, GRPC(r.GRPC), Target(t, Echo)).Close()
		})
	}
}
