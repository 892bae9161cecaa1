// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/e2e-framework/pkg/envconf"
)

// The tunnel is the only way from the control plane to nodes and Pods: direct
// connections fail, which the firewall's counters show too, and all other tests
// of this package pass with this firewall.
// It observes KON-10 of docs/requirements.md.
func TestTunnelIsTheOnlyWay(t *testing.T) {
	if suite.Simulated() {
		t.Skip("an embedded cluster is on one host, where there is no network between control plane and nodes: fairlead verify counts its dials")
	}
	run(t, "tunnel is the only way", 2*time.Minute,
		step{"direct dials succeed without the firewall and fail with it", func(_ context.Context, t *testing.T) {
			if err := firewall.Tight(); err != nil {
				t.Error(err)
			}
		}},
		step{"direct dials are counted", func(ctx context.Context, t *testing.T) {
			before := dropped(ctx, t)
			dials := firewall.Dial(ctx)
			for _, d := range dials {
				if d.Connected {
					t.Errorf("%+v", d)
				}
			}
			if after := dropped(ctx, t); after-before < len(dials) {
				t.Errorf("%d dials failed, but only %d packets were dropped", len(dials), after-before)
			}
		}},
		step{"calls work, and nothing of theirs is dropped", func(ctx context.Context, t *testing.T) {
			before := dropped(ctx, t)
			for range 50 {
				if err := dial(ctx); err != nil {
					t.Error(err)
				}
			}
			for _, n := range suite.Nodes.All() {
				if err := suite.NodeHealthz(ctx, n.String()); err != nil {
					t.Error(err)
				}
			}
			if after := dropped(ctx, t); after != before {
				t.Errorf("%d packets were dropped: something tried to go past the tunnel", after-before)
			}
		}},
	)
}

func dropped(ctx context.Context, t *testing.T) int {
	t.Helper()
	n, err := firewall.Dropped(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// countDropped makes every test fail if a process tried to bypass the tunnel
// during the test. The test above does so on purpose.
func countDropped(ctx context.Context, _ *envconf.Config, t *testing.T) (context.Context, error) {
	if firewall != nil && t.Name() != "TestTunnelIsTheOnlyWay" {
		firewall.FailOnDrop(ctx, t)
	}
	return ctx, nil
}
