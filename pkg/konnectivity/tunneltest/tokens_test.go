// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestTokenRotation checks that the agent uses a renewed token in the same file when it
// next connects, and that the old token is refused.
func TestTokenRotation(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			t.Parallel()
			v, tokens := startReviewer(t, reviewsPerSecond)
			r := NewRig(t, server.Config{Tokens: tokens, Protocol: Only(upstreamOnly)})
			p := NewProxy(t, r.AgentTLS)
			var mu sync.Mutex
			token := "good"
			a := r.StartAgent(agent.Config{Token: func() (string, error) { mu.Lock(); defer mu.Unlock(); return token, nil }}, p.Addr)
			v.good.Store("renewed")
			p.Cut()
			Eventually(t, Patience, "the old token is refused", func() bool {
				return Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="token"}`) > 0 && !a.Ready()
			})
			mu.Lock()
			token = "renewed"
			mu.Unlock()
			Eventually(t, Patience, "the new token is accepted", a.Ready)
			var b strings.Builder
			r.Metrics.Registry.Write(&b)
			if !strings.Contains(b.String(), `fairlead_tunnel_server_token_checks_total{result="refused"}`) {
				t.Error("refusals of tokens are not counted")
			}
		})
	}
}

// TestTokenRotationFailsNoDial renews tokens again and again, each time with the loss of
// the link that used the old token, and checks that no dial fails meanwhile.
func TestTokenRotationFailsNoDial(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			t.Parallel()
			v, tokens := startReviewer(t, reviewsPerSecond)
			r := NewRig(t, server.Config{Tokens: tokens, Protocol: Only(upstreamOnly), AgentWait: Patience})
			p := NewProxy(t, r.AgentTLS)
			var token atomic.Value
			token.Store("good")
			a := r.StartAgent(agent.Config{Token: func() (string, error) { return token.Load().(string), nil }}, p.Addr)
			addr := Target(t, Echo)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var wg sync.WaitGroup
			var dials atomic.Int64
			var mu sync.Mutex
			longest := time.Duration(0)
			for _, dial := range []Dialer{GRPC(r.GRPC), Connect(r.Connect)} {
				wg.Go(func() {
					for ctx.Err() == nil {
						start := time.Now()
						c, err := dial(context.WithoutCancel(ctx), addr)
						if err != nil {
							t.Errorf("dial: %v", err)
							return
						}
						_ = c.Close()
						mu.Lock()
						longest = max(longest, time.Since(start))
						mu.Unlock()
						dials.Add(1)
					}
				})
			}
			for i := range 10 {
				before, accepted := dials.Load(), Metric(r.Metrics.Registry, `fairlead_tunnel_server_token_checks_total{result="accepted"}`)
				renewed := fmt.Sprint("renewed ", i)
				v.good.Store(renewed)
				token.Store(renewed)
				p.Cut()
				Eventually(t, Patience, "the new token is accepted", func() bool {
					return a.Ready() && Metric(r.Metrics.Registry, `fairlead_tunnel_server_token_checks_total{result="accepted"}`) > accepted
				})
				Eventually(t, Patience, "dials go on", func() bool { return t.Failed() || dials.Load() > before+2 })
			}
			stop()
			wg.Wait()
			Unavailable(t, longest)
		})
	}
}
