package server_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/konntest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/konntest/kasdial"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/pipe"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/sock"
)

// TestStuckUploadIsForgotten: what waits for a destination that stopped reading takes
// no memory any more when the destination goes away.
func TestStuckUploadIsForgotten(t *testing.T) {
	for name, reference := range map[string]bool{"link": false, "reference": true} {
		t.Run(name, func(t *testing.T) {
			r := konntest.NewRig(t, server.Config{ReferenceOnly: reference})
			r.StartAgent(agent.Config{}, "")
			for mode, dial := range map[string]konntest.Dialer{"grpc": konntest.GRPC(r.GRPC), "connect": konntest.Connect(r.Connect)} {
				before := konntest.Settled(t)
				leave := make(chan struct{})
				release := sync.OnceFunc(func() { close(leave) })
				defer release()
				sink := konntest.Target(t, func(net.Conn) { <-leave })
				c := konntest.MustDial(t, dial, sink)
				wrote := make(chan struct{})
				go func() {
					defer close(wrote)
					for b := make([]byte, 64<<10); ; {
						if _, err := c.Write(b); err != nil {
							return
						}
					}
				}()
				konntest.Eventually(t, konntest.Patience, "bytes wait", func() bool { return buf.InUse() > before+(64<<10) })
				stuck := konntest.Settled(t)
				release() // unread bytes make that a reset
				konntest.Eventually(t, konntest.Patience, mode+": they are forgotten", func() bool { return buf.InUse() <= before })
				t.Logf("%s: %d bytes waited", mode, stuck-before)
				_ = c.Close()
				<-wrote
			}
		})
	}
}

// TestLeftUploadEnds: when a client goes away that has sent more than its destination
// takes, the connection ends after a while, on both sides. One that goes on taking gets
// all of it.
func TestLeftUploadEnds(t *testing.T) {
	const stall = time.Second
	for name, reference := range map[string]bool{"link": false, "reference": true} {
		for mode, connect := range map[string]bool{"grpc": false, "connect": true} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				times := pipe.Config{Stall: stall}
				r := konntest.NewRig(t, server.Config{ReferenceOnly: reference, Pipe: times})
				r.StartAgent(agent.Config{Pipe: times}, "")
				life, cut := context.WithCancel(t.Context())
				defer cut()
				dial := konntest.Dialer(func(ctx context.Context, address string) (net.Conn, error) {
					return kasdial.GRPCUntil(ctx, life, r.GRPC, address)
				})
				if connect {
					dial = konntest.Connect(r.Connect)
				}
				before := konntest.Settled(t)
				over := make(chan struct{})
				leave(t, dial, cut, konntest.Target(t, func(c net.Conn) {
					defer close(over)
					konntest.Eventually(t, konntest.Patience, "the destination sees an end", sock.New(c).HungUp)
				}), before)
				select {
				case <-over:
				case <-time.After(konntest.Patience):
					t.Error("the destination's connection is still there")
				}
				konntest.Eventually(t, konntest.Patience, "nothing is held", func() bool { return buf.InUse() <= before })
				konntest.Eventually(t, konntest.Patience, "nothing is counted", func() bool { return r.Server.Established() == 0 })
			})
		}
	}
}

// TestSlowDestinationGetsAll: a destination that takes what is left in steps gets all of
// it, though its client has long been gone.
func TestSlowDestinationGetsAll(t *testing.T) {
	const stall, size = 400 * time.Millisecond, 2 << 20
	for name, reference := range map[string]bool{"link": false, "reference": true} {
		t.Run(name, func(t *testing.T) {
			times := pipe.Config{Stall: stall}
			r := konntest.NewRig(t, server.Config{ReferenceOnly: reference, Pipe: times})
			r.StartAgent(agent.Config{Pipe: times}, "")
			got := make(chan int, 1)
			c := konntest.MustDial(t, konntest.Connect(r.Connect), konntest.Target(t, func(c net.Conn) {
				n := 0
				for b := make([]byte, 128<<10); ; time.Sleep(stall / 4) {
					m, err := io.ReadFull(c, b)
					n += m
					if err != nil {
						got <- n
						return
					}
				}
			}))
			left := make(chan time.Time, 1)
			go func() {
				_, _ = c.Write(make([]byte, size))
				left <- time.Now()
				_ = c.Close()
			}()
			select {
			case n := <-got:
				if n != size {
					t.Errorf("%d bytes of %d arrived", n, size)
				}
				if after := time.Since(<-left); after < stall {
					t.Errorf("the last bytes waited for %v only", after)
				}
			case <-time.After(konntest.Patience):
				t.Error("no end")
			}
		})
	}
}

// leave uploads until nothing is taken any more, and goes away.
func leave(t *testing.T, dial konntest.Dialer, cut func(), addr string, before int64) {
	t.Helper()
	c := konntest.MustDial(t, dial, addr)
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		for b := make([]byte, 64<<10); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}()
	konntest.Eventually(t, konntest.Patience, "bytes wait", func() bool { return buf.InUse() > before+(64<<10) })
	konntest.Settled(t)
	cut() // the reference client's Close would wait for its turn to say so
	_ = c.Close()
	<-wrote
}
