// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestFrozenAgent: an agent that stops answering gets no dials, and the dials that
// it has are given to another.
func TestFrozenAgent(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			t.Parallel()
			r := NewRig(t, server.Config{Protocol: Only(upstreamOnly)})
			p := NewProxy(t, r.AgentTLS)
			r.StartAgent(agent.Config{AgentID: "frozen"}, p.Addr)
			r.StartAgent(agent.Config{AgentID: "healthy"}, "")
			addr := Target(t, Echo)
			p.Freeze(true)
			dial := Connect(r.Connect)
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), Patience)
					defer cancel()
					c, err := dial(ctx, addr)
					if err != nil {
						t.Errorf("dial right after the freeze: %v", err)
						return
					}
					c.Close()
				})
			}
			wg.Wait()
			before := redials(r)
			for range 50 {
				MustDial(t, dial, addr).Close()
			}
			if n := redials(r) - before; n > 5 { // half of them, if it were chosen
				t.Errorf("%d of 50 dials were first given to an agent that is known to be frozen", n)
			}
		})
	}
}

// redials is how many dials were given to another agent.
func redials(r *Rig) int {
	var b strings.Builder
	r.Metrics.Registry.Write(&b)
	n := 0
	for line := range strings.Lines(b.String()) {
		_, _ = fmt.Sscanf(line, "fairlead_tunnel_server_redials_total %d", &n)
	}
	return n
}

// TestReset: when the link breaks, clients see the end of their connections, a
// transfer is not taken for whole, and the agent comes back.
func TestReset(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{AgentWait: Patience})
	p := NewProxy(t, r.AgentTLS)
	a := r.StartAgent(agent.Config{}, p.Addr)
	addr := Target(t, Echo)
	g, h := MustDial(t, GRPC(r.GRPC), addr), MustDial(t, Connect(r.Connect), addr)
	p.Cut()
	for _, c := range []net.Conn{g, h} {
		if n, err := readFull(c, make([]byte, 1), Patience); err == nil || n > 0 {
			t.Errorf("read %d, %v from a connection whose link is gone", n, err)
		}
	}
	Eventually(t, Patience, "agent is back", func() bool { ok, _ := r.Server.Ready(); return ok && a.Ready() })
	MustDial(t, GRPC(r.GRPC), addr).Close()
	Eventually(t, Patience, "nothing is left", func() bool { return r.Server.Established() == 0 })
}

// TestPendingDialExpires is upstream's #855: a dial without an answer is forgotten.
func TestPendingDialExpires(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{DialTimeout: 300 * time.Millisecond})
	p := NewProxy(t, r.AgentTLS)
	r.StartAgent(agent.Config{}, p.Addr)
	p.Freeze(true)
	begin := time.Now()
	_, err := Connect(r.Connect)(context.Background(), "127.0.0.1:1")
	if err == nil || !strings.Contains(err.Error(), "504") {
		t.Errorf("got %v, want 504", err)
	}
	Unavailable(t, time.Since(begin)) // until the client gets the error
	if n := r.Server.Established(); n != 0 {
		t.Errorf("%d dials are left", n)
	}
}

// TestClientGoneDuringDial: a client that goes away while its dial is pending
// leaves nothing behind.
func TestClientGoneDuringDial(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{})
	a := r.StartAgent(agent.Config{}, "")
	addr := Target(t, Echo)
	for range 100 {
		c, err := net.Dial("unix", r.Connect)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", addr)
		c.Close()
	}
	Eventually(t, Patience, "server has none left", func() bool { return r.Server.Established() == 0 })
	Eventually(t, Patience, "agent has none left", func() bool { return endpoints(a) == 0 })
}

func endpoints(a *Agent) int {
	var b strings.Builder
	a.Metrics.Registry.Write(&b)
	n := -1
	for _, line := range strings.Split(b.String(), "\n") {
		_, _ = fmt.Sscanf(line, "konnectivity_network_proxy_agent_open_endpoint_connections %d", &n)
	}
	return n
}

func TestListenUnix(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := server.ListenUnix(file, true); !errors.Is(err, server.ErrNotSocket) {
		t.Errorf("a file in the way: %v", err)
	}
	path := filepath.Join(dir, "s")
	first, err := server.ListenUnix(path, true)
	if err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o770 {
		t.Errorf("socket has mode %v, want srwxrwx---", info.Mode())
	}
	if _, err := server.ListenUnix(path, true); !errors.Is(err, server.ErrSocketUsed) {
		t.Errorf("a live server's socket: %v", err)
	}
	first.Close()
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	if _, err := server.ListenUnix(path, false); err == nil {
		t.Error("a stale socket is replaced without being told to")
	}
	again, err := server.ListenUnix(path, true)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// TestBadInput sends garbage to all listeners: each is counted, and logged once with
// the peer, and a connection next to it notices nothing.
func TestBadInput(t *testing.T) {
	t.Parallel()
	r := newRogueClients(t)
	healthy := MustDial(t, GRPC(r.GRPC), Target(t, Echo))
	load := StartLoad(t, GRPC(r.GRPC), Target(t, Echo), besideFaults)
	tlsRefused := func() float64 {
		return Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="tls"}`)
	}
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	for name, in := range map[string]string{
		"HTTP/1.1": "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT to nothing": "CONNECT\r\n\r\n", "long line": strings.Repeat("x", 40<<10),
		"binary":          "\x00\x01\x02\x03",
		"idle stream":     preface + "\x00\x00\x00\x00\x00\x00\x00\x00\x05", // DATA without HEADERS
		"oversized frame": preface + "\xff\xff\xff\x04\x00\x00\x00\x00\x00",
		"bad HPACK":       preface + "\x00\x00\x05\x01\x04\x00\x00\x00\x01\xff\xff\xff\xff\xff",
	} {
		t.Run(name, func(t *testing.T) {
			send := func(network, address string) net.Addr {
				c, err := net.Dial(network, address)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				_, _ = c.Write([]byte(in))
				_ = c.(interface{ CloseWrite() error }).CloseWrite()
				_ = c.SetReadDeadline(time.Now().Add(Patience))
				_, _ = io.Copy(io.Discard, c)
				return c.LocalAddr()
			}
			for mode, socket := range map[string]string{"grpc": r.GRPC, "http-connect": r.Connect} {
				before, lines := r.badInput(), len(r.logged(`client="a Unix socket, process`))
				send("unix", socket)
				Eventually(t, Patience, mode+": it is counted", func() bool { return r.badInput() == before+1 })
				if n := len(r.logged(`client="a Unix socket, process`)) - lines; n != 1 {
					t.Errorf("%s: logged in %d lines with the peer, want 1", mode, n)
				}
			}
			before := tlsRefused()
			peer := send("tcp", r.AgentTLS)
			Eventually(t, Patience, "it is counted at the agents' port", func() bool { return tlsRefused() == before+1 })
			r.wantOneLine(t, peer)
			load.MoreDials(t, 2)
		})
	}
	_, _ = healthy.Write([]byte("x"))
	if _, err := readFull(healthy, make([]byte, 1), Patience); err != nil {
		t.Fatalf("healthy connection: %v", err)
	}
	load.NoneFailed(t)
}
