// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/endpoint"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest/kasdial"
)

// TestStuckUploadIsForgotten: what waits for a destination that stopped reading takes
// no memory any more when the destination goes away.
func TestStuckUploadIsForgotten(t *testing.T) {
	for name, upstreamOnly := range map[string]bool{"link": false, "upstream": true} {
		t.Run(name, func(t *testing.T) {
			r := tunneltest.NewRig(t, server.Config{Protocol: tunneltest.Only(upstreamOnly)})
			r.StartAgent(agent.Config{}, "")
			for mode, dial := range map[string]tunneltest.Dialer{"grpc": tunneltest.GRPC(r.GRPC), "connect": tunneltest.Connect(r.Connect)} {
				before := tunneltest.Settled(t)
				leave := make(chan struct{})
				release := sync.OnceFunc(func() { close(leave) })
				defer release()
				sink := tunneltest.Target(t, func(net.Conn) { <-leave })
				c := tunneltest.MustDial(t, dial, sink)
				wrote := make(chan struct{})
				go func() {
					defer close(wrote)
					for b := make([]byte, 64<<10); ; {
						if _, err := c.Write(b); err != nil {
							return
						}
					}
				}()
				tunneltest.Eventually(t, tunneltest.Patience, "bytes wait", func() bool { return buffer.InUse() > before+(64<<10) })
				stuck := tunneltest.Settled(t)
				release() // unread bytes make that a reset
				tunneltest.Eventually(t, tunneltest.Patience, mode+": they are forgotten", func() bool { return buffer.InUse() <= before })
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
	const stall = 300 * time.Millisecond
	for name, upstreamOnly := range map[string]bool{"link": false, "upstream": true} {
		for mode, connect := range map[string]bool{"grpc": false, "connect": true} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				times := endpoint.Config{Stall: stall}
				r := tunneltest.NewRig(t, server.Config{Protocol: tunneltest.Only(upstreamOnly), Pipe: times})
				r.StartAgent(agent.Config{Pipe: times}, "")
				life, cut := context.WithCancel(t.Context())
				defer cut()
				dial := tunneltest.Dialer(func(ctx context.Context, address string) (net.Conn, error) {
					return kasdial.GRPCUntil(ctx, life, r.GRPC, address)
				})
				if connect {
					dial = tunneltest.Connect(r.Connect)
				}
				before := tunneltest.Settled(t)
				over := make(chan struct{})
				leave(t, dial, cut, tunneltest.Target(t, func(c net.Conn) {
					defer close(over)
					tunneltest.Eventually(t, tunneltest.Patience, "the destination sees an end", netx.New(c).HungUp)
				}), before)
				select {
				case <-over:
				case <-time.After(tunneltest.Patience):
					t.Error("the destination's connection is still there")
				}
				tunneltest.Eventually(t, tunneltest.Patience, "nothing is held", func() bool { return buffer.InUse() <= before })
				tunneltest.Eventually(t, tunneltest.Patience, "nothing is counted", func() bool { return r.Server.Established() == 0 })
			})
		}
	}
}

// TestSlowDestinationGetsAll: a destination that takes what is left in steps gets all of
// it, though its client has long been gone.
func TestSlowDestinationGetsAll(t *testing.T) {
	t.Parallel()
	const stall, size = 1500 * time.Millisecond, 2 << 20
	for name, upstreamOnly := range map[string]bool{"link": false, "upstream": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			times := endpoint.Config{Stall: stall}
			r := tunneltest.NewRig(t, server.Config{Protocol: tunneltest.Only(upstreamOnly), Pipe: times})
			r.StartAgent(agent.Config{Pipe: times}, "")
			got := make(chan int, 1)
			c := tunneltest.MustDial(t, tunneltest.Connect(r.Connect), tunneltest.Target(t, func(c net.Conn) {
				n := 0
				for b := make([]byte, 128<<10); ; time.Sleep(stall / 5) {
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
			case <-time.After(tunneltest.Patience):
				t.Error("no end")
			}
		})
	}
}

// leave uploads until nothing is taken any more, and goes away.
func leave(t *testing.T, dial tunneltest.Dialer, cut func(), addr string, before int64) {
	t.Helper()
	c := tunneltest.MustDial(t, dial, addr)
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		for b := make([]byte, 64<<10); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}()
	tunneltest.Eventually(t, tunneltest.Patience, "bytes wait", func() bool { return buffer.InUse() > before+(64<<10) })
	tunneltest.Settled(t)
	cut() // upstream's client's Close would wait for its turn to say so
	_ = c.Close()
	<-wrote
}
