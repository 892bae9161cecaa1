// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"crypto/tls"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestBadNetwork: through a network that delays, and passes on crumbs, everything
// arrives whole and in order, in both modes and protocols.
func TestBadNetwork(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		for name, spoil := range map[string]func(p *Proxy){
			"delay":  func(p *Proxy) { p.Slow(4 * time.Millisecond) },
			"crumbs": func(p *Proxy) { p.Chop(50) },
		} {
			t.Run(fmt.Sprintf("%s, upstream=%v", name, upstreamOnly), func(t *testing.T) {
				r := NewRig(t, server.Config{Protocol: Only(upstreamOnly)})
				p := NewProxy(t, r.AgentTLS)
				spoil(p)
				r.StartAgent(agent.Config{}, p.Addr)
				addr := Target(t, Echo)
				load := StartLoad(t, GRPC(r.GRPC), addr, besideFaults)
				var wg sync.WaitGroup
				for i, d := range []Dialer{GRPC(r.GRPC), Connect(r.Connect)} {
					for j := range 2 {
						c := MustDial(t, d, addr)
						wg.Go(func() { echoes(t, c, uint64(10*i+j), 256<<10) })
					}
				}
				wg.Wait()
				load.NoneFailed(t)
			})
		}
	}
}

// TestPatchyNetwork: a network that is silent now and then, in both directions or in
// one, for less time than it takes to be given up, loses nothing.
func TestPatchyNetwork(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		for name, fail := range silences {
			t.Run(fmt.Sprintf("%s, upstream=%v", name, upstreamOnly), func(t *testing.T) {
				t.Parallel()
				r := NewRig(t, server.Config{Protocol: Only(upstreamOnly)})
				p := NewProxy(t, r.AgentTLS)
				r.StartAgent(agent.Config{}, p.Addr)
				for mode, dial := range map[string]Dialer{"grpc": GRPC(r.GRPC), "http-connect": Connect(r.Connect)} {
					tr := StartTraffic(t, dial, r.inside())
					load := StartLoad(t, dial, Target(t, Echo), besideFaults)
					for range 4 {
						fail(p, true)
						time.Sleep(250 * time.Millisecond) // how long the network is silent
						fail(p, false)
						time.Sleep(50 * time.Millisecond) // and passes on
					}
					tr.Progress()
					tr.End()
					if n := tr.Cut(); n > 0 {
						t.Errorf("%s: %d transfers broke", mode, n)
					}
					load.NoneFailed(t)
				}
			})
		}
	}
}

// silences are the ways in which a network passes nothing on.
var silences = map[string]func(p *Proxy, on bool){
	"black hole": (*Proxy).Freeze, "half open, to the server": (*Proxy).HalfOpen, "half open, to the agent": (*Proxy).HalfShut,
}

// TestLossByReset cuts the link again and again while transfers run: each either
// arrives whole or ends with an error, on the client's side and at the destination,
// and is never taken for whole when it is not.
func TestLossByReset(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		for _, mode := range []string{"grpc", "http-connect"} {
			t.Run(fmt.Sprintf("%s, upstream=%v", mode, upstreamOnly), func(t *testing.T) {
				r := NewRig(t, server.Config{Protocol: Only(upstreamOnly), AgentWait: Patience})
				// By TCP, because a Unix socket cannot say that it was cut.
				_, proxy := r.FrontendsTLS()
				dial, inside := ConnectStrictly(proxy, r.inside()), (*tls.Config)(nil)
				if mode == "grpc" { // whose client takes any end for an orderly one
					dial, inside = GRPC(r.GRPC), r.inside()
				}
				p := NewProxy(t, r.AgentTLS)
				r.StartAgent(agent.Config{}, p.Addr)
				tr := StartTraffic(t, dial, inside)
				tr.Down.Store(true) // a dial that the agent had is lost with it
				for range 3 {
					tr.Midway(p.Cut)
				}
				tr.Progress()
				tr.End()
				if tr.Cut() < clients {
					t.Errorf("%d transfers broke, want those of all %d clients", tr.Cut(), clients)
				}
				Eventually(t, Patience, "nothing is left", func() bool { return r.Server.Established() == 0 && tr.Open.Load() == 0 })
			})
		}
	}
}

// inside is for both sides of TLS inside of a tunneled connection.
func (r *Rig) inside() *tls.Config {
	r.t.Helper()
	cfg, err := r.AgentTLSConfig()()
	if err != nil {
		r.t.Fatal(err)
	}
	return cfg
}

// TestSilentNetwork: a network that drops everything, or everything in one
// direction, is found by both sides, and the agent is back as soon as the network is.
func TestSilentNetwork(t *testing.T) {
	t.Parallel()
	loseSilently(t, link.Config{PingAfter: 200 * time.Millisecond, DeadAfter: 3 * time.Second}, Patience)
}

// TestSilentNetworkDefaults is TestSilentNetwork with the limits that the programs have: both sides find it within 20 s.
func TestSilentNetworkDefaults(t *testing.T) {
	testutil.Full(t, "waits for the limits of the programs")
	t.Parallel()
	loseSilently(t, link.Config{}, 25*time.Second) // 20 s on a machine with nothing else to do
}

func loseSilently(t *testing.T, cfg link.Config, limit time.Duration) {
	t.Helper()
	for name, fail := range silences {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := NewRig(t, server.Config{Link: cfg})
			p := NewProxy(t, r.AgentTLS)
			a := r.StartAgent(agent.Config{Link: cfg}, p.Addr)
			tr := StartTraffic(t, Connect(r.Connect), r.inside())
			tr.Down.Store(true)
			tr.Midway(func() { fail(p, true) })
			start := time.Now()
			Eventually(t, Patience, "both have given up the link", func() bool {
				ready, _ := r.Server.Ready()
				return !ready && !a.Ready()
			})
			took := time.Since(start)
			Unavailable(t, took) // until both sides have ended its connections
			if took > limit {
				t.Errorf("found after %v", took)
			}
			p.Refuse(true)
			p.Cut()
			p.Refuse(false)
			Eventually(t, Patience, "the agent is back", a.Ready)
			tr.Progress()
			tr.End()
			if tr.Cut() < clients/2 { // a network that is silent in one direction can carry the rest of a download
				t.Errorf("%d transfers broke, want those of %d clients", tr.Cut(), clients/2)
			}
		})
	}
}
