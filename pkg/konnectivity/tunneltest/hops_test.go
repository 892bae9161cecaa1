// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// hop is a way through the tunnel with a bad network before or behind it.
type hop struct {
	proxy *Proxy
	dial  Dialer
	addr  string
}

// TestBadNetworkOutside: where the network between client and server or between agent
// and destination delays, crumbles, is silent for a while and resets, what it delivers
// is whole and in order, and a neighbor notices nothing.
func TestBadNetworkOutside(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{})
	r.StartAgent(agent.Config{}, "")
	grpcAddr, connectAddr := r.FrontendsTLS()
	cfg, err := r.AgentTLSConfig()()
	if err != nil {
		t.Fatal(err)
	}
	echo := Target(t, Echo)
	before := func(to string) *Proxy { return NewProxy(t, to) }
	g, c, dg, dc := before(grpcAddr), before(connectAddr), before(echo), before(echo)
	for name, h := range map[string]hop{
		"client, grpc":              {g, GRPCTLS(g.Addr, cfg), echo},
		"client, http-connect":      {c, ConnectTLS(c.Addr, cfg), echo},
		"destination, grpc":         {dg, GRPC(r.GRPC), dg.Addr},
		"destination, http-connect": {dc, Connect(r.Connect), dc.Addr},
	} {
		t.Run(name, func(t *testing.T) {
			neighbor := MustDial(t, Connect(r.Connect), echo)
			defer neighbor.Close()
			h.spoil(t, neighbor)
			Eventually(t, Patience, "only the neighbor is left", func() bool { return r.Server.Established() == 1 })
		})
	}
}

// spoil does to the hop's network what can be done to one.
func (h hop) spoil(t *testing.T, neighbor net.Conn) {
	bad := MustDial(t, h.dial, h.addr)
	h.proxy.Slow(4 * time.Millisecond)
	echoes(t, bad, 1, 256<<10)
	h.proxy.Slow(0)
	h.proxy.Chop(50)
	echoes(t, bad, 2, 256<<10)
	h.proxy.Chop(0)
	h.proxy.Freeze(true)
	over := make(chan struct{})
	go func() { defer close(over); echoes(t, bad, 3, 4<<20) }()
	echoes(t, neighbor, 4, 4<<20)
	select {
	case <-over:
		t.Error("bytes passed a frozen network")
	default:
	}
	h.proxy.Freeze(false)
	<-over
	h.proxy.Cut()
	if n, err := readFull(bad, make([]byte, 1), Patience); err == nil || strings.Contains(err.Error(), "in time") {
		t.Errorf("behind a reset the client reads %d bytes, %v", n, err)
	}
	_ = bad.Close()
	echoes(t, neighbor, 5, 256<<10)
}
