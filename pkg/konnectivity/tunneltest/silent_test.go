// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestSilentNetworkUnderLoad: a network that drops everything is found by both sides
// though transfers keep one of them waiting for room to write, and the transfers end.
func TestSilentNetworkUnderLoad(t *testing.T) {
	t.Parallel() // it mostly waits
	pour := func(c net.Conn, _ *atomic.Int64) {
		for b := make([]byte, 64<<10); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}
	drink := func(c net.Conn, moved *atomic.Int64) {
		for b := make([]byte, 64<<10); ; {
			n, err := c.Read(b)
			if moved.Add(int64(n)); err != nil {
				return
			}
		}
	}
	for name, f := range map[string]struct{ client, target func(net.Conn, *atomic.Int64) }{"uploads": {pour, drink}, "downloads": {drink, pour}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var moved atomic.Int64
			cfg := link.Config{Window: 2 << 20, PingAfter: 500 * time.Millisecond, DeadAfter: 4 * time.Second}
			r := NewRig(t, server.Config{Link: cfg})
			p := NewProxy(t, r.AgentTLS)
			a := r.StartAgent(agent.Config{Link: cfg}, p.Addr)
			addr := Target(t, func(c net.Conn) { f.target(c, &moved) })
			var wg sync.WaitGroup
			for range 8 {
				c := MustDial(t, Connect(r.Connect), addr)
				wg.Go(func() { f.client(c, &moved) })
			}
			Eventually(t, Patience, "bytes move", func() bool { return moved.Load() > 4<<20 })
			p.Freeze(true)
			start := time.Now()
			Eventually(t, Patience, "both have given up the link", func() bool {
				ready, _ := r.Server.Ready()
				return !ready && !a.Ready()
			})
			t.Logf("found after %v", time.Since(start).Round(time.Millisecond))
			wg.Wait()
			p.Cut()
		})
	}
}
