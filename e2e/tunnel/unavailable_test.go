// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// dialsPerSecond is the load under which faults are measured.
const dialsPerSecond = 50

// TestUnavailability: while 50 connections a second are made, an agent is killed, the server is killed and started again,
// and an agent stops for 5 s. No more dials fail than those of a second, two for the server, and none takes longer than twice the bar of its
// fault, because the machine may be busy. The log says how long the longest one took: "make chaos" compares that with the bar.
func TestUnavailability(t *testing.T) {
	testutil.Full(t, "measures how long dials take beside faults")
	for name, c := range map[string]struct {
		do   func(t *testing.T, p *pair)
		most int // failed dials
		bar  time.Duration
	}{
		"agent killed": {func(t *testing.T, p *pair) { signal(t, p.agent, syscall.SIGKILL) }, dialsPerSecond, 2 * time.Second},
		"server killed": {func(t *testing.T, p *pair) {
			signal(t, p.server, syscall.SIGKILL)
			p.server.ExitCode(t, promptly)
			p.server = p.startServer()
		}, 2 * dialsPerSecond, 10 * time.Second},
		"agent stopped": {func(t *testing.T, p *pair) {
			p.agent.Freeze(t)
			time.Sleep(5 * time.Second) // how long it is stopped
			signal(t, p.agent, syscall.SIGCONT)
		}, dialsPerSecond, 5 * time.Second}, // a dial of before may wait as long as the agent is stopped
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
			if longest > 2*c.bar {
				t.Errorf("a dial took %v, and the bar is %v", longest, c.bar)
			}
			if len(errs) > c.most {
				t.Errorf("%d of %d dials failed, for example: %v", len(errs), dials, errs[0])
			}
		})
	}
}

// TestStoppedAgentGetsNoDials: an agent that has been stopped for 4 s, twice the bar, is still connected, and no new dial waits for it. A dial that
// did would last until the server gives the agent up, or longer.
func TestStoppedAgentGetsNoDials(t *testing.T) {
	testutil.Full(t, "stops an agent for some seconds")
	p, _, dial, _ := trafficPair(t, "grpc", 1)
	target := tunneltest.Target(t, tunneltest.Echo)
	load := tunneltest.StartLoad(t, dial, target, dialsPerSecond) // by which the server notices
	daemontest.Eventually(t, startBound, dialsOver(load, dialsPerSecond))
	p.agent.Freeze(t)
	time.Sleep(4 * time.Second) // in which the server notices: no metric tells
	later := tunneltest.StartLoad(t, dial, target, dialsPerSecond)
	daemontest.Eventually(t, tunneltest.Patience, dialsOver(later, dialsPerSecond))
	dials, longest, errs := later.Stop()
	if err := backends(p, 2)(); err != nil {
		t.Errorf("the server has given the agent up: %v", err)
	}
	signal(t, p.agent, syscall.SIGCONT)
	load.Stop()
	t.Logf("the longest of %d new dials took %v", dials, longest.Round(time.Millisecond))
	if len(errs) > 0 || longest > 5*time.Second {
		t.Errorf("the longest of %d new dials took %v, and %d failed: %v", dials, longest, len(errs), errors.Join(errs...))
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
