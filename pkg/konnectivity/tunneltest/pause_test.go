// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"net"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// TestPauseAbortedDownloads: with --slow-receivers=pause an upstream agent's
// connections share one window of 1 MiB. What clients that go away leave unread must
// come back to it, or the agent's connection stands still for good.
func TestPauseAbortedDownloads(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, dial := range map[string]func(*Rig) Dialer{
		"grpc":         func(r *Rig) Dialer { return GRPC(r.GRPC) },
		"http-connect": func(r *Rig) Dialer { return Connect(r.Connect) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := NewRig(t, server.Config{Protocol: settings.ProtocolUpstream, PauseSlow: true})
			r.StartAgent(agent.Config{}, "")
			d := dial(r)
			endless := Target(t, func(c net.Conn) {
				b := make([]byte, 64<<10)
				for {
					if _, err := c.Write(b); err != nil {
						return
					}
				}
			})
			for range 30 {
				c := mustDialLeave(t, d, endless)
				if _, err := readFull(c, make([]byte, 300_000), Patience); err != nil {
					t.Fatalf("a download: %v", err)
				}
				leaving.Go(func() { _ = c.Close() }) // upstream's client takes 10 s to close with data unread
			}
			c := MustDial(t, d, Target(t, Echo))
			go func() { _, _ = c.Write(make([]byte, 3<<20)) }()
			if _, err := readFull(c, make([]byte, 3<<20), Patience); err != nil {
				t.Errorf("a connection after aborted downloads: %v", err)
			}
		})
	}
}
