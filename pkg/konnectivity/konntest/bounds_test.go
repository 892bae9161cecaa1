package konntest

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestManyDialsAtOnce: of dials that are made at once, no more than the limit on
// connections are let through, whether they wait for an answer or have one; the others
// are told the limit.
func TestManyDialsAtOnce(t *testing.T) {
	const limit, n = 5, 40
	hole := blackHole(t)
	for name, c := range map[string]struct {
		server server.Config
		agent  agent.Config
		text   string
	}{
		"server":                 {server.Config{MaxConns: limit}, agent.Config{DialTimeout: 2 * Patience}, "server has 5 connections and dials, its limit"},
		"agent":                  {server.Config{DialTimeout: 2 * Patience}, agent.Config{MaxConns: limit, DialTimeout: 2 * Patience}, "agent has 5 connections and dials, its limit"},
		"agent's link":           {server.Config{MaxPerAgent: limit, DialTimeout: 2 * Patience}, agent.Config{DialTimeout: 2 * Patience}, "has 5 connections and dials, the server's limit for one agent"},
		"agent's reference link": {server.Config{MaxPerAgent: limit, DialTimeout: 2 * Patience, ReferenceOnly: true}, agent.Config{DialTimeout: 2 * Patience}, "has 5 connections and dials, the server's limit for one agent"},
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
			// The agent may still be about to notice that its dials were given up.
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

// wave is dials that are made at once.
type wave struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	errs   []error
	conns  []net.Conn
}

// dialAtOnce makes n dials, half of them in each mode.
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

// end gives up what is pending and closes what is connected.
func (w *wave) end() {
	w.cancel()
	w.wg.Wait()
	for _, c := range w.conns {
		_ = c.Close()
	}
}

// count is how many dials failed with a text.
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

// TestManyAgentsAtOnce: of agents that come at once, no more are connected than the
// limit says.
func TestManyAgentsAtOnce(t *testing.T) {
	const limit, n = 3, 20
	for name, reference := range map[string]bool{"link": false, "reference": true} {
		t.Run(name, func(t *testing.T) {
			r := NewRig(t, server.Config{MaxAgents: limit, ReferenceOnly: reference})
			links := func() float64 {
				return Metric(r.Metrics.Registry, `fairlead_tunnel_server_links{protocol="`+map[bool]string{true: "reference", false: "fairlead"}[reference]+`"}`)
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

// TestSilentPeersTakeRoom: who connects with our own protocol and does not introduce
// itself takes an agent's room. The agent beyond it is told why it is refused, and gets
// in when there is room; another peer that says nothing is cut off soon.
func TestSilentPeersTakeRoom(t *testing.T) {
	r := NewRig(t, server.Config{MaxAgents: 1, HandshakeTimeout: 3 * Patience})
	first := dialAgentsPort(t, r, link.ALPN)
	l := &logs{}
	a := r.LaunchAgent(agent.Config{Logf: l.logf}, "")
	Eventually(t, Patience, "the agent is told the limit", func() bool { return len(l.logged("as many agents as it may have")) > 0 })
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

// TestFullAgentsAreNotAsked: dials go past agents that have as many connections as the
// server allows them, and are told the limit when all have.
func TestFullAgentsAreNotAsked(t *testing.T) {
	for name, reference := range map[string]bool{"link": false, "reference": true} {
		t.Run(name, func(t *testing.T) {
			const agents = 3
			r := NewRig(t, server.Config{MaxPerAgent: 1, ReferenceOnly: reference, AgentWait: 2 * Patience})
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
