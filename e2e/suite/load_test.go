// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// underLoad runs a function while new dials and long streams are open, and
// returns their counts.
func underLoad(ctx context.Context, t *testing.T, do func(context.Context) error) (harness.Dials, harness.StreamCount) {
	t.Helper()
	streams, err := harness.StartStreams(ctx, streamsOfEach, suite.LongStreams())
	if err != nil {
		t.Fatal(err)
	}
	load := harness.StartLoad(ctx, dialsPerSecond, dial)
	time.Sleep(time.Second) // the load before anything happens
	begin := time.Now()
	err = do(ctx)
	took := time.Since(begin)
	time.Sleep(2 * time.Second) // the load after it
	dials, count := load.Stop(), streams.Stop()
	if dials.Failed == 0 {
		tunneltest.Unavailable(t, dials.Max) // for the table of make chaos
	}
	t.Logf("in %s: %s\n%s", took.Round(100*time.Millisecond), dials, count)
	if err != nil {
		t.Error(err)
	}
	if want := dialsPerSecond * int(took.Seconds()) / 2; dials.Made < want {
		t.Errorf("only %d dials were made, want %d at least: too little load to prove anything", dials.Made, want)
	}
	return dials, count
}

// wantNoDamage checks that broken streams ended cleanly (none got data that
// were not sent, and none hung) and could be reopened at once.
func wantNoDamage(t *testing.T, s harness.StreamCount) {
	t.Helper()
	if s.Failed > 0 {
		t.Errorf("%d streams could not be opened", s.Failed)
	}
	for _, b := range s.Broken {
		if strings.Contains(b, harness.ErrCorrupt.Error()) || strings.Contains(b, harness.ErrStalled.Error()) {
			t.Errorf("a stream must end cleanly: %s", b)
		}
	}
}
