// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/promtext"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

const (
	// evictBound is what the tests allow to be held, and manyStalled how many
	// connections hold more than that together.
	evictBound  = 4 << 20
	manyStalled = 60
)

// TestEviction: connections whose receivers do not read, each within its own bound,
// are reset when together they hold more than may be held for one peer, or in
// total. A busy connection and a quiet one through the same agent go on, and the
// agent stays connected.
func TestEviction(t *testing.T) {
	for _, bound := range []string{"peer", "total"} {
		for _, upstreamOnly := range []bool{false, true} {
			for _, mode := range []string{"grpc", "http-connect"} {
				t.Run(fmt.Sprintf("%s, upstream=%v, %s", bound, upstreamOnly, mode), func(t *testing.T) {
					if bound == "peer" == upstreamOnly {
						testutil.Full(t, "the other bound of the protocol is tried")
					}
					e := newEvictRig(t, bound, upstreamOnly, mode)
					t.Run("clients do not read", e.downloads)
					if mode == "grpc" {
						return // where destinations are is all the same to agents
					}
					t.Run("destinations do not read", func(t *testing.T) { e.uploads(t, false) })
					t.Run("destinations do not read, clients are gone", func(t *testing.T) { e.uploads(t, true) })
				})
			}
		}
	}
}

type evictRig struct {
	*Rig
	agent *Agent
	dial  Dialer
	bound string
}

func newEvictRig(t *testing.T, bound string, upstreamOnly bool, mode string) *evictRig {
	peer, total := int64(evictBound), int64(0)
	if bound == "total" {
		peer, total = 0, 2*evictBound
	}
	window := link.Config{Window: 256 << 10, MaxWindow: 256 << 10}
	r := NewRig(t, server.Config{Protocol: Only(upstreamOnly), PeerBuffer: peer, TotalBuffer: total, Link: window})
	e := &evictRig{Rig: r, bound: bound, dial: GRPC(r.GRPC)}
	if mode == "http-connect" {
		e.dial = Connect(r.Connect)
	}
	e.agent = r.StartAgent(agent.Config{PeerBuffer: peer, TotalBuffer: total, Link: window}, "")
	return e
}

func (e *evictRig) downloads(t *testing.T) {
	source := Target(t, endless)
	healthy := e.startHealthy(t)
	for range manyStalled {
		c := mustDialLeave(t, e.dial, source)
		_, _ = c.Write([]byte{1})
	}
	e.wantEvicted(t, "server", e.Metrics.Registry)
	healthy.unharmed(t)
}

func (e *evictRig) uploads(t *testing.T, leave bool) {
	healthy := e.startHealthy(t)
	stuck := make(chan struct{})
	defer close(stuck)
	sink := Target(t, func(net.Conn) { <-stuck })
	for range manyStalled {
		c := mustDialLeave(t, e.dial, sink)
		go func() {
			b := make([]byte, 64<<10)
			for i := 0; !leave || i < 128; i++ { // more than the kernel holds
				if _, err := c.Write(b); err != nil {
					return
				}
			}
			_ = c.Close()
		}()
	}
	e.wantEvicted(t, "agent", e.agent.Metrics.Registry)
	healthy.unharmed(t)
}

func (e *evictRig) wantEvicted(t *testing.T, at string, r *promtext.Registry) {
	t.Helper()
	Eventually(t, Patience, "connections are reset at the "+at, func() bool {
		return Metric(r, `fairlead_tunnel_`+at+`_evictions_total{bound="`+e.bound+`"}`) > 0
	})
	// Server and agent share this process; each may fill its bound.
	Eventually(t, Patience, "memory is bounded", func() bool { return buffer.InUse() < 5*evictBound/2 })
}

// healthy is a connection that is always busy, and one that is quiet.
type healthy struct {
	e     *evictRig
	quiet net.Conn
	moved atomic.Int64
	fails float64
	load  *Load // of new connections
}

func (e *evictRig) startHealthy(t *testing.T) *healthy {
	echo := Target(t, Echo)
	h := &healthy{e: e, quiet: mustDialLeave(t, e.dial, echo), fails: e.linksLost(), load: StartLoad(t, e.dial, echo, besideFaults)}
	busy := mustDialLeave(t, e.dial, echo)
	go func() {
		for b := make([]byte, 64<<10); ; h.moved.Add(int64(len(b))) {
			if _, err := busy.Write(b); err != nil {
				return
			}
			if _, err := io.ReadFull(busy, b); err != nil {
				return
			}
		}
	}()
	return h
}

func (e *evictRig) linksLost() float64 {
	return Metric(e.agent.Metrics.Registry, `konnectivity_network_proxy_agent_server_connection_failure_count{direction="from_server"}`)
}

func (h *healthy) unharmed(t *testing.T) {
	t.Helper()
	time.Sleep(100 * time.Millisecond) // so that some more are reset
	before := h.moved.Load()
	Eventually(t, Patience, "the busy connection goes on", func() bool { return h.moved.Load() > before+4<<20 })
	_, _ = h.quiet.Write([]byte{1})
	if _, err := readFull(h.quiet, make([]byte, 1), Patience); err != nil {
		t.Errorf("the quiet connection: %v", err)
	}
	h.load.NoneFailed(t)
	if h.e.linksLost() > h.fails {
		t.Error("the agent's link is another")
	}
}
