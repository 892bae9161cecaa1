// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// ignored is a Sender that ignores the callback.
type ignored struct{}

func (ignored) Sent(int) {}

// dial makes a tunneled connection on the stream and returns its connection ID.
func (s *rogueStream) dial(t *testing.T, address string, random int64) int64 {
	t.Helper()
	s.send(wire.Packet{Payload: wire.DialReq, Protocol: "tcp", Address: address, Random: random})
	p := s.next(t, wire.DialRsp)
	if p.Error != "" {
		t.Fatalf("dial to %s: %s", address, p.Error)
	}
	return p.ConnID
}

// TestSharedClientConnection checks a gRPC client that has several streams on one
// connection: a stream whose agent takes nothing stalls alone.
func TestSharedClientConnection(t *testing.T) {
	r := NewRig(t, server.Config{Strategies: []server.Strategy{server.StrategyDestHost, server.StrategyDefaultRoute},
		Link: link.Config{DeadAfter: 10 * Patience}})
	r.StartAgent(agent.Config{Identifiers: "default-route=true"}, "")
	a := newGatedAgent(t, r, "host="+rogueHost)
	got := make(chan error, 1)
	sink := Target(t, func(c net.Conn) {
		_, err := io.ReadFull(c, make([]byte, 5))
		got <- err
	})
	nc, err := net.Dial("unix", r.GRPC)
	if err != nil {
		t.Fatal(err)
	}
	stalled, _ := openRogue(t, nc, "/ProxyService/Proxy")
	other := rogueOver(stalled.Conn(), "/ProxyService/Proxy")
	to, from := stalled.dial(t, rogueHost+":1", 1), other.dial(t, sink, 2)
	a.gate.Lock()
	open := sync.OnceFunc(a.gate.Unlock)
	defer open()
	for range 256 { // more than the kernel's socket buffers hold
		stalled.SendData(to, ignored{}, buffer.From(make([]byte, buffer.MaxPayload)))
	}
	Settled(t)
	other.SendData(from, ignored{}, buffer.From([]byte("hello")))
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for the stalled one")
	}
}
