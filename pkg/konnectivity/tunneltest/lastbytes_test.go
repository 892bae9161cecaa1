// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestShutdownDeliversAll: a server that stops waits until agents have what clients have
// written that are gone already.
func TestShutdownDeliversAll(t *testing.T) {
	for name, upstreamOnly := range map[string]bool{"link": false, "upstream": true} {
		for mode, dialer := range map[string]func(*Rig) Dialer{
			"grpc":         func(r *Rig) Dialer { return GRPC(r.GRPC) },
			"http-connect": func(r *Rig) Dialer { return Connect(r.Connect) },
		} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				r := NewRig(t, server.Config{Protocol: Only(upstreamOnly)})
				proxy := NewProxy(t, r.AgentTLS)
				r.StartAgent(agent.Config{}, proxy.Addr)
				shutDownBehind(t, r, proxy, dialer(r))
			})
		}
	}
}

// shutDownBehind stops the server behind clients that write and close while the agent
// reads nothing.
func shutDownBehind(t *testing.T, r *Rig, proxy *Proxy, dial Dialer) {
	const clients, size = 64, 48 << 10 // more than kernels take, and each less than the window of a gRPC client
	got := make(chan int64, clients)
	addr := Target(t, func(c net.Conn) {
		n, _ := io.Copy(io.Discard, c)
		got <- n
	})
	conns := make([]net.Conn, clients)
	for i := range conns {
		conns[i] = MustDial(t, dial, addr)
	}
	proxy.Freeze(true)
	closed := make(chan struct{}, clients)
	for _, c := range conns {
		go func() {
			if _, err := c.Write(make([]byte, size)); err != nil {
				t.Error(err)
			}
			_ = c.Close()
			closed <- struct{}{}
		}()
	}
	for range clients - 1 { // one can be held up, whose bytes the agent does not take
		<-closed
	}
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	over := make(chan struct{})
	go func() { r.Shutdown(ctx); close(over) }()
	select {
	case <-over:
		t.Error("the server has stopped before the agent has read anything")
	case <-time.After(500 * time.Millisecond):
	}
	proxy.Freeze(false)
	for range clients {
		if n := <-got; n != size {
			t.Errorf("a destination got %d of %d bytes", n, size)
		}
	}
	<-closed
	if <-over; ctx.Err() != nil {
		t.Error("the server waited for its grace")
	}
}
