package server_test

import (
	"net"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/konntest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
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
