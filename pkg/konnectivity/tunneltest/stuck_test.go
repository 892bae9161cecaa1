// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// promptly is more than an end takes on a busy machine, and less than TLS waits to say
// goodbye.
const promptly = 4500 * time.Millisecond

// wantPrompt fails the test if f takes longer.
func wantPrompt(t *testing.T, what string, f func()) {
	t.Helper()
	start := time.Now()
	f()
	if d := time.Since(start); d > promptly {
		t.Errorf("%s takes %v", what, d)
	} else {
		t.Logf("%s takes %v", what, d.Round(time.Millisecond))
	}
}

// TestStopBehindStuckWrite: links whose peers take nothing do not hold up the end of a
// server or an agent.
func TestStopBehindStuckWrite(t *testing.T) {
	wide := link.Config{Window: 64 << 20} // so that the link is what is full
	send := func(c net.Conn) {
		for b := make([]byte, 64<<10); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}
	stuck := func(p *Proxy) {
		p.Freeze(true)
		t.Cleanup(p.Cut)
	}
	t.Run("server", func(t *testing.T) {
		r := NewRig(t, server.Config{})
		p := NewProxy(t, r.AgentTLS)
		r.StartAgent(agent.Config{Link: wide}, p.Addr)
		c := mustDialLeave(t, GRPC(r.GRPC), Target(t, Echo))
		stuck(p)
		go send(c)
		Settled(t)
		wantPrompt(t, "stopping the server", r.Stop)
	})
	t.Run("agent", func(t *testing.T) {
		r := NewRig(t, server.Config{Link: wide})
		p := NewProxy(t, r.AgentTLS)
		a := r.StartAgent(agent.Config{}, p.Addr)
		begin := make(chan struct{})
		source := Target(t, func(c net.Conn) { <-begin; send(c) })
		mustDialLeave(t, GRPC(r.GRPC), source)
		stuck(p)
		close(begin)
		Settled(t)
		wantPrompt(t, "stopping the agent", a.Stop)
	})
}

// TestDrainWithoutAnswer: a server that does not answer does not hold up an agent
// without connections.
func TestDrainWithoutAnswer(t *testing.T) {
	r := NewRig(t, server.Config{})
	p := NewProxy(t, r.AgentTLS)
	a := r.StartAgent(agent.Config{}, p.Addr)
	p.Freeze(true)
	defer p.Cut()
	ctx, cancel := context.WithTimeout(context.Background(), 2*promptly)
	defer cancel()
	wantPrompt(t, "draining", func() { a.Drain(ctx) })
}
