// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestShutdownDeliversAll: a server that stops waits until agents have what clients have
// written that are gone already.
func TestShutdownDeliversAll(t *testing.T) {
	t.Parallel()
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
	t.Run("local", func(t *testing.T) {
		r := NewRig(t, server.Config{})
		shutDownBehind(t, r, addLocal(t, r), GRPC(r.GRPC))
	})
}

// addLocal gives all dials to an agent without TLS behind a proxy, as a server with local destinations gives them to one in its process.
func addLocal(t *testing.T, r *Rig) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	a := agent.New(agent.Config{}, agent.NewMetrics())
	go func() {
		if far, err := l.Accept(); err == nil {
			_ = a.Serve(far)
		}
	}()
	proxy := NewProxy(t, l.Addr().String())
	near, err := net.Dial("tcp", proxy.Addr)
	if err != nil {
		t.Fatal(err)
	}
	r.Server.AddLocal(near, func(string) bool { return true })
	return proxy
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
	ended := shutDown(t, r, "the agent has read anything")
	proxy.Freeze(false)
	for range clients {
		if n := <-got; n != size {
			t.Errorf("a destination got %d of %d bytes", n, size)
		}
	}
	<-closed
	ended()
}

// shutDown begins to stop the server, and fails the test if it stops before something has happened. The function that is returned waits
// for the end, which must come before the server's grace is over.
func shutDown(t *testing.T, r *Rig, before string) (ended func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	over := make(chan struct{})
	go func() { r.Shutdown(ctx); close(over) }()
	select {
	case <-over:
		t.Errorf("the server has stopped before %s", before)
	case <-time.After(500 * time.Millisecond):
	}
	return func() {
		t.Helper()
		if <-over; ctx.Err() != nil {
			t.Error("the server waited for its grace")
		}
	}
}

// TestShutdownDeliversAnswers: a server that stops waits, within its grace, for clients that do not have all data yet of connections
// that their destinations have closed. Upstream's client takes the end of its connection to the server for the end of the data.
func TestShutdownDeliversAnswers(t *testing.T) {
	t.Parallel()
	const size = 200 << 10 // less than a link's window, so that all of it comes, and more than the client's
	for name, upstreamOnly := range map[string]bool{"link": false, "upstream": true} {
		t.Run(name, func(t *testing.T) {
			r := NewRig(t, server.Config{Protocol: Only(upstreamOnly)})
			r.StartAgent(agent.Config{}, "")
			addr := Target(t, func(c net.Conn) { _, _ = c.Write(make([]byte, size)); _ = c.Close() })
			nc, err := net.Dial("unix", r.GRPC)
			if err != nil {
				t.Fatal(err)
			}
			s, _ := openRogueWith(t, nc, h2.Config{FirstWindow: 64 << 10}, "/ProxyService/Proxy")
			s.dial(t, addr, 7)
			Eventually(t, Patience, "the destination has closed the connection, and the client's window is used up", func() bool {
				return s.data.Load() > 0 && r.Server.Established() == 0
			})
			ended := shutDown(t, r, "the client has all data")
			if n := s.data.Load(); n >= size {
				t.Fatalf("%d of %d bytes came before the client opened its window: the test shows nothing", n, size)
			}
			read := int64(0)
			Eventually(t, Patience, "all data comes", func() bool {
				now := s.read.Load()
				s.Consumed(int(now - read))
				read = now
				return s.data.Load() == size
			})
			s.next(t, wire.CloseRsp)
			ended()
		})
	}
}
