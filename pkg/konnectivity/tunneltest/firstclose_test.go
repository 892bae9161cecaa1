// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"bytes"
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// soon is more than it takes on a busy machine, and less than the kernel takes to give
// up a connection that was closed at one end.
const soon = 20 * time.Second

// TestDestinationClosesFirst: over upstream's protocol, too, the agent keeps nothing
// of a connection that its destination has closed, in one direction or both, and does
// not wait for it when it drains. Nothing is lost in either direction.
func TestDestinationClosesFirst(t *testing.T) {
	answer := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	question := bytes.Repeat([]byte{7}, 100_000)
	for name, half := range map[string]bool{"both directions": false, "one direction": true} {
		t.Run(name, func(t *testing.T) {
			r := NewRig(t, server.Config{Protocol: settings.ProtocolUpstream})
			for mode, dial := range map[string]Dialer{"grpc": GRPC(r.GRPC), "http-connect": Connect(r.Connect)} {
				a := r.StartAgent(agent.Config{}, "")
				over := make(chan struct{})
				addr := Target(t, func(c net.Conn) {
					defer close(over)
					if n, err := io.ReadFull(c, make([]byte, len(question))); err != nil {
						t.Errorf("%s: the destination got %d of %d bytes: %v", mode, n, len(question), err)
					}
					_, _ = c.Write(answer)
					if half {
						_ = c.(*net.TCPConn).CloseWrite()
						_, _ = io.Copy(io.Discard, c) // until the agent closes
					}
				})
				c := MustDial(t, dial, addr)
				_, _ = c.Write(question)
				if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, answer) {
					t.Errorf("%s: the client got %d of %d bytes, %v", mode, len(got), len(answer), err)
				}
				Eventually(t, soon, mode+": the agent keeps nothing", func() bool { return a.Connections() == 0 && ends() == 0 })
				Eventually(t, soon, mode+": the destination is done", func() bool {
					select {
					case <-over:
						return true
					default:
						return false
					}
				})
				ctx, cancel := context.WithTimeout(t.Context(), soon)
				start := time.Now()
				a.Drain(ctx)
				if cancel(); time.Since(start) > soon/4 {
					t.Errorf("%s: the drain took %v", mode, time.Since(start))
				}
				_ = c.Close()
				a.Stop()
				Eventually(t, Patience, "the server forgets the agent", func() bool { return !r.Server.Connected(a.ID) })
			}
		})
	}
}

// ends counts the goroutines that read sockets for agents.
func ends() int {
	b := make([]byte, 16<<20)
	n := 0
	for _, stack := range strings.Split(string(b[:runtime.Stack(b, true)]), "\n\n") {
		if strings.Contains(stack, "agent.(*target).run") {
			n++
		}
	}
	return n
}
