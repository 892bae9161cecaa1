// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// dialsPerSecond is the load under which faults are measured.
const dialsPerSecond = 50

// TestUnavailability: while 50 connections a second are made, an agent is killed, the server is killed and started again,
// and an agent stops for 5 s. No more dials fail than those of a second, two for the server, and the log says how long the
// longest one took: "make chaos" prints that.
func TestUnavailability(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(t *testing.T, p *pair)
		most int // failed dials
	}{
		"agent killed": {func(t *testing.T, p *pair) { signal(t, p.agent, syscall.SIGKILL) }, dialsPerSecond},
		"server killed": {func(t *testing.T, p *pair) {
			signal(t, p.server, syscall.SIGKILL)
			p.server.ExitCode(t, promptly)
			p.server = p.startServer()
		}, 2 * dialsPerSecond},
		"agent stopped": {func(t *testing.T, p *pair) {
			signal(t, p.agent, syscall.SIGSTOP)
			time.Sleep(5 * time.Second)
			signal(t, p.agent, syscall.SIGCONT)
		}, dialsPerSecond},
	} {
		t.Run(name, func(t *testing.T) {
			p, _, dial, _ := trafficPair(t, "grpc", 1)
			load := tunneltest.StartLoad(t, dial, tunneltest.Target(t, tunneltest.Echo), dialsPerSecond)
			daemontest.Eventually(t, startBound, dialsOver(load, dialsPerSecond))
			c.do(t, p)
			daemontest.Eventually(t, tunneltest.Patience, dialsOver(load, load.Dials()+2*dialsPerSecond))
			dials, longest, errs := load.Stop()
			tunneltest.Unavailable(t, longest)
			t.Logf("%d of %d dials failed", len(errs), dials)
			if len(errs) > c.most {
				t.Errorf("%d of %d dials failed, for example: %v", len(errs), dials, errs[0])
			}
		})
	}
}

func signal(t *testing.T, p *daemontest.Process, s syscall.Signal) {
	t.Helper()
	if err := p.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// dialsOver waits for a number of dials that are over.
func dialsOver(l *tunneltest.Load, n int) func() error {
	return func() error {
		if have := l.Dials(); have < n {
			return fmt.Errorf("%d dials", have)
		}
		return nil
	}
}
