// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// TestManyDialsAtOnce checks that, of dials that are made at once, no more than the
// limit on connections pass, whether they wait for an answer or have one. The others
// fail with an error that names the limit.
func TestManyDialsAtOnce(t *testing.T) {
	t.Parallel()
	const limit, n = 5, 40
	hole := BlackHole(t)
	for name, c := range map[string]struct {
		server server.Config
		agent  agent.Config
		text   string
	}{
		"server":                {server.Config{MaxConns: limit}, agent.Config{DialTimeout: 2 * Patience}, "server has 5 connections and dials, its limit"},
		"agent":                 {server.Config{DialTimeout: 2 * Patience}, agent.Config{MaxConns: limit, DialTimeout: 2 * Patience}, "agent has 5 connections and dials, its limit"},
		"agent's link":          {server.Config{MaxPerAgent: limit, DialTimeout: 2 * Patience}, agent.Config{DialTimeout: 2 * Patience}, "has 5 connections and dials, the server's limit for one agent"},
		"agent's upstream link": {server.Config{MaxPerAgent: limit, DialTimeout: 2 * Patience, Protocol: settings.ProtocolUpstream}, agent.Config{DialTimeout: 2 * Patience}, "has 5 connections and dials, the server's limit for one agent"},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRig(t, c.server)
			r.StartAgent(c.agent, "")
			w := dialAtOnce(t, r, hole, n)
			Eventually(t, Patience, "those beyond the limit are refused", func() bool { return w.count(c.text) == n-limit })
			if held := r.Server.Established(); held != limit {
				t.Errorf("%d dials are pending, the limit is %d", held, limit)
			}
			w.end()
			if refused := w.count(c.text); refused != n-limit {
				t.Errorf("%d dials were refused, want %d", refused, n-limit)
			}
			Eventually(t, Patience, "nothing is left", func() bool { return r.Server.Established() == 0 })
			var open, most atomic.Int64
			addr := Target(t, func(c net.Conn) {
				now := open.Add(1)
				defer open.Add(-1)
				for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
				}
				Echo(c)
			})
			// The agent may not have noticed yet that its dials were given up.
			Eventually(t, Patience, "there is room", func() bool {
				w = dialAtOnce(t, r, addr, n)
				defer w.end()
				Eventually(t, Patience, "all have an answer", func() bool { return w.count("")+w.connected() == n })
				return w.count(c.text) == n-limit && w.connected() == limit
			})
			if most.Load() > limit {
				t.Errorf("%d connections at a time, the limit is %d", most.Load(), limit)
			}
		})
	}
}

// wave is a group of dials that are made at once.
type wave struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	errs   []error
	conns  []net.Conn
}

// dialAtOnce makes n dials, half of them with gRPC and half with HTTP CONNECT.
func dialAtOnce(t *testing.T, r *Rig, addr string, n int) *wave {
	w := &wave{}
	ctx, cancel := context.WithCancel(t.Context())
	w.cancel = cancel
	t.Cleanup(w.end)
	for i := range n {
		dial := []Dialer{GRPC(r.GRPC), Connect(r.Connect)}[i%2]
		w.wg.Go(func() {
			c, err := dial(ctx, addr)
			w.mu.Lock()
			defer w.mu.Unlock()
			if err != nil {
				w.errs = append(w.errs, err)
			} else {
				w.conns = append(w.conns, c)
			}
		})
	}
	return w
}

// end cancels pending dials and closes connections.
func (w *wave) end() {
	w.cancel()
	w.wg.Wait()
	for _, c := range w.conns {
		_ = c.Close()
	}
}

// count returns how many dials failed with an error that contains text.
func (w *wave) count(text string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, err := range w.errs {
		if strings.Contains(err.Error(), text) {
			n++
		}
	}
	return n
}

func (w *wave) connected() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.conns)
}

// TestManyAgentsAtOnce checks that, when many agents connect at once, no more than the
// limit are accepted.
func TestManyAgentsAtOnce(t *testing.T) {
	t.Parallel()
	const limit, n = 3, 20
	for name, upstreamOnly := range map[string]bool{"link": false, "upstream": true} {
		t.Run(name, func(t *testing.T) {
			r := NewRig(t, server.Config{MaxAgents: limit, Protocol: Only(upstreamOnly)})
			links := func() float64 {
				return Metric(r.Metrics.Registry, `fairlead_tunnel_server_links{protocol="`+map[bool]string{true: "upstream", false: "fairlead"}[upstreamOnly]+`"}`)
			}
			for range n {
				r.LaunchAgent(agent.Config{}, "")
			}
			Eventually(t, Patience, "the limit is reached and others are refused", func() bool {
				if links() > limit {
					t.Errorf("%v agents are connected, the limit is %d", links(), limit)
				}
				return links() == limit && Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="limit"}`) >= n
			})
			if links() > limit {
				t.Errorf("%v agents are connected, the limit is %d", links(), limit)
			}
		})
	}
}

// TestSilentPeersTakeRoom checks that a peer that connects with Fairlead's own protocol
// and sends no hello takes the place of an agent. The server refuses the agent beyond
// the limit with the reason, and accepts it when there is room. It soon cuts off
// another peer that sends nothing.
func TestSilentPeersTakeRoom(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{MaxAgents: 1, HandshakeTimeout: 3 * Patience})
	first := silentPeer(t, r)
	l := &logs{}
	a := r.LaunchAgent(agent.Config{Logger: l.logger()}, "")
	Eventually(t, Patience, "the agent logs the limit", func() bool { return len(l.logged("as many agents as it may have")) > 0 })
	if a.Ready() {
		t.Error("an agent beyond the limit is connected")
	}
	wantEnd(t, dialAgentsPort(t, r, link.ALPN))
	_ = first.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	var ne net.Error
	if _, err := first.Read(make([]byte, 1)); !errors.As(err, &ne) || !ne.Timeout() {
		t.Errorf("the peer within the limit: %v", err)
	}
	_ = first.Close()
	Eventually(t, Patience, "the room is used", a.Ready)
}

// silentPeer takes the only place of a server. A client's TLS handshake ends before the server
// counts the connection, so of two peers the one that the server does not cut off has it.
func silentPeer(t *testing.T, r *Rig) *tls.Conn {
	t.Helper()
	peers := []*tls.Conn{dialAgentsPort(t, r, link.ALPN), dialAgentsPort(t, r, link.ALPN)}
	for end := time.Now().Add(Patience); time.Now().Before(end); {
		for i, nc := range peers {
			_ = nc.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			if _, err := io.Copy(io.Discard, nc); !errors.Is(err, os.ErrDeadlineExceeded) {
				return peers[1-i]
			}
		}
	}
	t.Fatal("the server cuts off neither of two silent peers, and has room for one")
	return nil
}

// TestFullAgentsAreNotAsked checks that the server skips agents that have as many
// connections as it allows them. When all agents are full, a dial fails with an error
// that names the limit.
func TestFullAgentsAreNotAsked(t *testing.T) {
	t.Parallel()
	for name, upstreamOnly := range map[string]bool{"link": false, "upstream": true} {
		t.Run(name, func(t *testing.T) {
			const agents = 3
			r := NewRig(t, server.Config{MaxPerAgent: 1, Protocol: Only(upstreamOnly), AgentWait: 2 * Patience})
			for range agents {
				r.StartAgent(agent.Config{}, "")
			}
			addr := Target(t, Echo)
			var conns []net.Conn
			for range agents {
				conns = append(conns, MustDial(t, Connect(r.Connect), addr))
			}
			if _, err := GRPC(r.GRPC)(t.Context(), addr); err == nil || !strings.Contains(err.Error(), "the server's limit for one agent") {
				t.Errorf("one more than there is room for: %v", err)
			}
			for i, c := range conns {
				_, _ = c.Write([]byte{1})
				if _, err := readFull(c, make([]byte, 1), Patience); err != nil {
					t.Errorf("connection %d: %v", i, err)
				}
			}
		})
	}
}
