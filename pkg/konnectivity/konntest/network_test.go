package konntest

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestBadNetwork: through a network that delays, and passes on crumbs, everything
// arrives whole and in order, in both modes and protocols.
func TestBadNetwork(t *testing.T) {
	for _, reference := range []bool{false, true} {
		for name, spoil := range map[string]func(p *Proxy){
			"delay":  func(p *Proxy) { p.Slow(4 * time.Millisecond) },
			"crumbs": func(p *Proxy) { p.Chop(50) },
		} {
			t.Run(fmt.Sprintf("%s, reference=%v", name, reference), func(t *testing.T) {
				r := NewRig(t, server.Config{ReferenceOnly: reference})
				p := NewProxy(t, r.AgentTLS)
				spoil(p)
				r.StartAgent(agent.Config{}, p.Addr)
				addr := Target(t, Echo)
				var wg sync.WaitGroup
				for i, d := range []Dialer{GRPC(r.GRPC), Connect(r.Connect)} {
					for j := range 2 {
						c := MustDial(t, d, addr)
						wg.Go(func() { echoes(t, c, uint64(10*i+j), 256<<10) })
					}
				}
				wg.Wait()
			})
		}
	}
}

// TestLossByReset cuts the link again and again while transfers run: each either
// arrives whole or ends with an error on the client's side, and is never taken for
// whole when it is not.
func TestLossByReset(t *testing.T) {
	for _, reference := range []bool{false, true} {
		t.Run(fmt.Sprintf("reference=%v", reference), func(t *testing.T) {
			r := NewRig(t, server.Config{ReferenceOnly: reference, AgentWait: Patience})
			// By TCP, because a Unix socket cannot say that it was cut.
			_, proxy := r.FrontendsTLS()
			cfg, err := r.AgentTLSConfig()()
			if err != nil {
				t.Fatal(err)
			}
			dial := ConnectTLS(proxy, cfg)
			p := NewProxy(t, r.AgentTLS)
			r.StartAgent(agent.Config{}, p.Addr)
			const size = 1 << 20
			source := Target(t, func(c net.Conn) { _, _ = readFull(c, make([]byte, 1), Patience); _, _ = c.Write(make([]byte, size)) })
			stop := make(chan struct{})
			var wg sync.WaitGroup
			var mu sync.Mutex
			whole, broken := 0, 0
			for range 4 {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						c, err := dial(t.Context(), source)
						if err != nil {
							continue // its agent went away
						}
						// A reset is told once: a write that gets it leaves an end to the read behind it.
						_, told := c.Write([]byte{1})
						n, clean := drain(c)
						_ = c.Close()
						mu.Lock()
						if n == size {
							whole++
						} else {
							broken++
						}
						mu.Unlock()
						if n < size && clean && told == nil {
							t.Errorf("a transfer of which %d of %d bytes arrived ended as if it were whole", n, size)
						}
					}
				})
			}
			for range 10 {
				time.Sleep(150 * time.Millisecond)
				p.Cut()
			}
			close(stop)
			wg.Wait()
			t.Logf("%d whole, %d broken", whole, broken)
			if whole == 0 {
				t.Error("no transfer was whole")
			}
			Eventually(t, Patience, "nothing is left", func() bool { return r.Server.Established() == 0 })
		})
	}
}

// drain reads to the end, and tells whether that was an orderly one.
func drain(c net.Conn) (n int, clean bool) {
	b := make([]byte, 64<<10)
	for {
		m, err := c.Read(b)
		if n += m; err != nil {
			return n, err.Error() == "EOF"
		}
	}
}

// TestSilentNetwork: a network that drops everything, or everything in one
// direction, is found by both sides within 20 s, and the agent is back as soon as
// the network is.
func TestSilentNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for time-outs")
	}
	t.Parallel()
	for name, fail := range map[string]func(p *Proxy, on bool){"black hole": (*Proxy).Freeze, "half open": (*Proxy).HalfOpen} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := NewRig(t, server.Config{})
			p := NewProxy(t, r.AgentTLS)
			a := r.StartAgent(agent.Config{}, p.Addr)
			fail(p, true)
			start := time.Now()
			Eventually(t, Patience, "both have given up the link", func() bool {
				ready, _ := r.Server.Ready()
				return !ready && !a.Ready()
			})
			took := time.Since(start)
			t.Logf("found after %v", took.Round(time.Millisecond))
			if took > 25*time.Second { // 20 s on a machine with nothing else to do
				t.Errorf("found after %v", took)
			}
			p.Refuse(true)
			p.Cut()
			p.Refuse(false)
			Eventually(t, Patience, "the agent is back", a.Ready)
		})
	}
}
