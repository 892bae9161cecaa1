// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"crypto/tls"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestManyAgents checks many agents that lose their server at once. All reconnect, dials that are made meanwhile wait for
// them, no broken transfer is taken for a complete one, and nothing of the agents remains when they have stopped.
func TestManyAgents(t *testing.T) { loseManyAgents(t, 100) }

// TestThousandsOfAgents is TestManyAgents with 5,000 agents.
func TestThousandsOfAgents(t *testing.T) {
	testutil.Full(t, "5,000 agents")
	testutil.Limit(t, 8*time.Minute) // 10,000 TLS handshakes of agents, which take turns
	loseManyAgents(t, 5000)
}

func loseManyAgents(t *testing.T, n int) {
	r := NewRig(t, server.Config{AgentWait: Patience, HandshakeTimeout: Patience, DialTimeout: Patience})
	l := r.cuttable()
	baseline := runtime.NumGoroutine()
	links := func() int {
		return int(Metric(r.Metrics.Registry, `fairlead_tunnel_server_links{protocol="fairlead"}`))
	}
	start := time.Now()
	end := r.startCrowd(n, l.Addr().String())
	Eventually(t, 2*Patience, "all agents are there", func() bool { return links() == n })
	t.Logf("%d agents connected after %v, %d goroutines", n, time.Since(start), runtime.NumGoroutine()-baseline)
	if per := (runtime.NumGoroutine() - baseline) / n; per > 4 {
		t.Errorf("%d goroutines per agent", per)
	}
	load := StartLoad(t, Connect(r.Connect), Target(t, Echo), 50)
	load.MoreDials(t, 1)
	tr := StartTraffic(t, GRPC(r.GRPC), r.inside()) // with TLS: such a client cannot be notified of the cut
	tr.Down.Store(true)                             // a pending dial at an agent is lost with the agent
	l.refuses.Store(true)
	tr.Midway(l.cut)
	Eventually(t, Patience, "server has noticed", func() bool { return links() == 0 })
	during, pending := load.Dials(), r.Server.Established()
	Eventually(t, Patience, "dials wait", func() bool { return r.Server.Established() >= pending+20 })
	if d := load.Dials() - during; d > 5 { // those whose connections the cut ended
		t.Errorf("%d dials ended without an agent", d)
	}
	l.refuses.Store(false)
	start = time.Now()
	Eventually(t, 2*Patience, "all agents are back", func() bool { return links() == n })
	t.Logf("%d agents back after %v", n, time.Since(start))
	tr.Progress()
	load.NoDialFailed(t)
	tr.End()
	if tr.Cut() < clients {
		t.Errorf("%d transfers broke, want those of all %d clients", tr.Cut(), clients)
	}
	if per := end() / n; per > 4 {
		t.Errorf("%d goroutines per agent in its own process", per)
	}
	Eventually(t, Patience, "server has none left", func() bool { return links() == 0 })
	Eventually(t, Patience, "goroutines are gone", func() bool { return runtime.NumGoroutine() <= baseline+10 })
}

// cuttable is a listener for agents whose connections can all be cut. Unlike a Proxy, it
// needs no file descriptors of its own.
type cuttable struct {
	net.Listener
	refuses atomic.Bool // rejects new connections

	mu    sync.Mutex
	conns []*net.TCPConn
}

// cuttable opens a further listener for agents.
func (r *Rig) cuttable() *cuttable {
	r.t.Helper()
	loader := r.loader("cuttable")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	c := &cuttable{Listener: l}
	go func() { _ = r.Server.ServeAgents(c, loader.Server(&tls.Config{MinVersion: tls.VersionTLS12})) }()
	return c
}

// Accept implements net.Listener.
func (c *cuttable) Accept() (net.Conn, error) {
	for {
		nc, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c.refuses.Load() {
			_ = nc.Close()
			continue
		}
		c.mu.Lock()
		c.conns = append(c.conns, nc.(*net.TCPConn))
		c.mu.Unlock()
		return nc, nil
	}
}

// cut closes both directions of all connections below TLS, as a network failure would
// appear to both ends.
func (c *cuttable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, nc := range c.conns {
		_ = nc.CloseRead() // fails where the agent has gone already
		_ = nc.CloseWrite()
	}
	c.conns = nil
}
