// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/harness"
)

// throughOtherAgent stops one of two agents. Connections to destinations of its node go through the other one: at once, while
// the client and the API still take the agent for connected, and afterwards.
func throughOtherAgent(ctx context.Context, t *testing.T) {
	if !suite.Simulated() {
		t.Skip("a stopped agent is a Pod there, which the kubelet starts again at once")
	}
	agents, err := connectedAgents(ctx)
	if err != nil || len(agents) != 2 {
		t.Fatalf("%d agents: %v", len(agents), err)
	}
	d := apiDialer(t, "")
	toEachNode := func(when string) {
		for name, a := range agents {
			to := echoService
			to.Node = a.Status.NodeName
			if err := connectAs(ctx, d, to); err != nil {
				t.Errorf("%s, to the node of %s: %v", when, name, err)
			}
		}
	}
	connected := func(ctx context.Context, want int) error {
		return harness.Wait(ctx, time.Minute, fmt.Sprint("connected agents: ", want), func(ctx context.Context) error {
			now, err := connectedAgents(ctx)
			if err == nil && len(now) != want {
				err = fmt.Errorf("%d agents are connected", len(now))
			}
			return err
		})
	}
	toEachNode("before") // the client keeps the names of both for some seconds
	one := suite.Processes("konnectivity-agent-0")
	atEnd(ctx, t, func(ctx context.Context) {
		if err := one.Start(ctx); err != nil {
			t.Error(err)
		}
		if err := connected(ctx, 2); err != nil {
			t.Error(err)
		}
	})
	if err := one.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		toEachNode("when one has just stopped")
	}
	if err := connected(ctx, 1); err != nil {
		t.Fatal(err)
	}
	toEachNode("when the API shows that")
}
