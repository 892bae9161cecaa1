// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"net"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// manyDials is more failed dials than one client connection may have in a burst.
const manyDials = 300

// TestFailedDialsAreNoFlood checks that a client keeps its connection when its dials fail,
// or when they wait in vain and the client gives them up together, and that its next dial
// succeeds. One stream of the connection is open from beginning to end.
func TestFailedDialsAreNoFlood(t *testing.T) {
	r := NewRig(t, server.Config{Strategies: []server.Strategy{server.StrategyDestHost, server.StrategyDefaultRoute},
		DialTimeout: 10 * Patience, Link: link.Config{DeadAfter: 10 * Patience}})
	r.StartAgent(agent.Config{Identifiers: "default-route=true"}, "")
	a := newGatedAgent(t, r, "host="+rogueHost)
	nc, err := net.Dial("unix", r.GRPC)
	if err != nil {
		t.Fatal(err)
	}
	kept, _ := openRogue(t, nc, "/ProxyService/Proxy")
	echo := Target(t, Echo)
	kept.dial(t, echo, 1)
	closed := closedPort(t)
	dial := func(address string, random int64) *rogueStream {
		s := rogueOver(kept.Conn(), "/ProxyService/Proxy")
		s.send(wire.Packet{Payload: wire.DialReq, Protocol: "tcp", Address: address, Random: random})
		return s
	}
	wantServed := func(t *testing.T, random int64) {
		t.Helper()
		s := rogueOver(kept.Conn(), "/ProxyService/Proxy")
		s.dial(t, echo, random)
		select {
		case err := <-kept.closed:
			t.Fatalf("the connection was cut: %v", err)
		default:
		}
		s.Reset(h2.CodeCancel)
	}
	t.Run("refused", func(t *testing.T) {
		for i := range int64(manyDials) {
			s := dial(closed, 1000+i)
			if p := s.next(t, wire.DialRsp); p.Error == "" {
				t.Fatal("a dial to a closed port succeeds")
			}
			s.Reset(h2.CodeCancel)
		}
		wantServed(t, 2)
	})
	t.Run("given up", func(t *testing.T) {
		a.gate.Lock() // after the first data this agent answers nothing
		defer a.gate.Unlock()
		stuck := rogueOver(kept.Conn(), "/ProxyService/Proxy")
		stuck.SendData(stuck.dial(t, rogueHost+":1", 4000), ignored{}, buffer.From([]byte("x")))
		Settled(t)
		var waiting []*rogueStream
		for i := range int64(manyDials) {
			waiting = append(waiting, dial(rogueHost+":1", 5000+i))
		}
		time.Sleep(1500 * time.Millisecond) // a client waits for many seconds
		for _, s := range waiting {
			s.Reset(h2.CodeCancel)
		}
		wantServed(t, 3)
	})
}

// closedPort returns an address of this machine on which nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestAgentFlood checks that a peer with a connected agent on its connection cannot open
// many other streams on it either: the token of one node must not allow a flood.
func TestAgentFlood(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{})
	s, _ := openRogue(t, strangerTo(t, r), "/AgentService/Connect", h2.Field{Name: "agentid", Value: "rogue"})
	Eventually(t, Patience, "the agent is there", func() bool { return r.Server.Connected("rogue") })
	for range 10 {
		rogueOver(s.Conn(), "/Nothing/Of").Reset(h2.CodeCancel)
	}
	Eventually(t, Patience, "it is counted", func() bool {
		return Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="flood"}`) == 1
	})
	Eventually(t, Patience, "the connection is cut", func() bool { return !r.Server.Connected("rogue") })
}
