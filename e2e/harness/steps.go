// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/e2e-framework/pkg/envconf"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// Step is one step in the life cycle of a cluster.
type Step struct {
	Name string
	Do   func(context.Context, *testing.T)
}

// stepLimit bounds a step; none takes half of it.
const stepLimit = 6 * time.Minute

// Steps makes steps one after another, as one feature, and stops at the first that
// fails.
func (s *Suite) Steps(t *testing.T, feature string, steps ...Step) {
	t.Helper()
	testutil.Limit(t, stepLimit)
	f := features.New(feature)
	failed := false
	for _, step := range steps {
		f.Assess(step.Name, func(ctx context.Context, t *testing.T, _ *envconf.Config) context.Context {
			if failed {
				t.Skip("an earlier step failed")
			}
			limited, cancel := context.WithTimeout(ctx, stepLimit)
			defer cancel()
			defer func() { failed = failed || t.Failed() }()
			step.Do(limited, t)
			return ctx
		})
	}
	s.Test(t, f.Feature())
}
