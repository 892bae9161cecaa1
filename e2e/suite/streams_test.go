// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// dialsPerSecond and streamsOfEach are the load of all tests of this file.
const (
	dialsPerSecond = 30
	streamsOfEach  = 3
)

// dial makes one new connection through the tunnel: the server closes each.
func dial(ctx context.Context) error {
	body, err := suite.ServiceGet(ctx, "echo", map[string]string{"msg": "dial"})
	if err == nil && string(body) != "dial" {
		err = fmt.Errorf("%q came back", body)
	}
	return err
}

// Long streams and new dials do not disturb each other.
func TestStreamsWhileDialling(t *testing.T) {
	testutil.Full(t, "a load of its own")
	run(t, "streams and dials", 2*time.Minute, step{"nothing fails", func(ctx context.Context, t *testing.T) {
		dials, streams := underLoad(ctx, t, func(context.Context) error {
			time.Sleep(8 * time.Second) // how long the load lasts
			return nil
		})
		if dials.Failed > 0 || len(streams.Broken) > 0 {
			t.Errorf("want that nothing fails: %s\n%s", dials, streams)
		}
	}})
}

// While agents are replaced one after another, as a rollout does, there is
// always another one to dial through.
func TestAgentRollout(t *testing.T) {
	testutil.Full(t, "TestAgentKilled is the harder fault")
	run(t, "rollout of the agents", 6*time.Minute, step{"no dial fails", func(ctx context.Context, t *testing.T) {
		dials, streams := underLoad(ctx, t, suite.Agents().Restart)
		if dials.Failed > 0 {
			t.Errorf("want that no dial fails: %s", dials)
		}
		wantNoDamage(t, streams)
	}})
}
