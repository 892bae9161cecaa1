// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// gatedAgent is an agent that accepts every dial and, while its gate is shut, reads
// nothing from its link. It lets streams send without end.
type gatedAgent struct {
	nc   *tls.Conn
	gate sync.Mutex // held while it is shut

	mu  sync.Mutex
	got map[uint32]int // bytes by stream
}

func newGatedAgent(t *testing.T, r *Rig, identifiers string) *gatedAgent {
	t.Helper()
	nc := dialAgentsPort(t, r, link.ALPN)
	if _, err := link.SendHello(nc, link.Hello{AgentID: "gated", Identifiers: identifiers, Window: 1 << 29}); err != nil {
		t.Fatal(err)
	}
	Eventually(t, Patience, "the agent is there", func() bool { return r.Server.Connected("gated") })
	a := &gatedAgent{nc: nc, got: map[uint32]int{}}
	go a.run()
	return a
}

func (a *gatedAgent) run() {
	var h [8]byte
	for {
		if _, err := io.ReadFull(a.nc, h[:]); err != nil {
			return
		}
		p := make([]byte, int(h[1])<<16|int(h[2])<<8|int(h[3]))
		if _, err := io.ReadFull(a.nc, p); err != nil {
			return
		}
		stream := binary.BigEndian.Uint32(h[4:])
		switch h[0] {
		case fDial:
			_, _ = a.nc.Write(frame(fDialed, stream, ""))
		case fPing:
			_, _ = a.nc.Write(frame(fPong, 0, string(p)))
		case fData:
			a.mu.Lock()
			a.got[stream] += len(p)
			a.mu.Unlock()
			a.pass()
		}
	}
}

// pass returns when the gate is open.
func (a *gatedAgent) pass() {
	a.gate.Lock()
	defer a.gate.Unlock()
}

// moved tells how many streams have got n bytes more than before.
func (a *gatedAgent) moved(before map[uint32]int, n int) (streams int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for st, got := range a.got {
		if got >= before[st]+n {
			streams++
		}
	}
	return streams
}

// TestStalledUploads: what clients send to an agent that takes nothing stays within
// --total-buffer, and each of them goes on when it takes something.
func TestStalledUploads(t *testing.T) {
	const total, uploads = 8 << 20, 100
	for _, mode := range []string{"grpc", "http-connect"} {
		t.Run(mode, func(t *testing.T) {
			r := NewRig(t, server.Config{TotalBuffer: total, Link: link.Config{DeadAfter: 10 * Patience}})
			dial := GRPC(r.GRPC)
			if mode == "http-connect" {
				dial = Connect(r.Connect)
			}
			a := newGatedAgent(t, r, "")
			conns := make([]net.Conn, uploads)
			for i := range conns {
				conns[i] = mustDialLeave(t, dial, "192.0.2.1:1")
			}
			a.gate.Lock()
			open := sync.OnceFunc(a.gate.Unlock)
			defer open()
			for _, c := range conns {
				go func() {
					for b := make([]byte, 32<<10); ; {
						if _, err := c.Write(b); err != nil {
							return
						}
					}
				}()
			}
			Eventually(t, Patience, "bytes wait", func() bool { return buffer.InUse() > total/2 })
			if n := Settled(t); n > total {
				t.Errorf("%d stalled uploads hold %d MiB, the bound is %d", uploads, n>>20, total>>20)
			} else {
				t.Logf("%d stalled uploads hold %d MiB", uploads, n>>20)
			}
			before := map[uint32]int{}
			a.mu.Lock()
			for st, n := range a.got {
				before[st] = n
			}
			a.mu.Unlock()
			open()
			Eventually(t, Patience, "all go on", func() bool { return a.moved(before, 512<<10) == uploads })
		})
	}
}
