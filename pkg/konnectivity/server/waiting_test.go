// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
)

// TestDialsThatWait checks that a dial that waits for an agent leaves no goroutine
// when it is canceled, and gets its answer when the server stops.
func TestDialsThatWait(t *testing.T) {
	s := New(Config{AgentWait: time.Hour, DialTimeout: time.Hour}, NewMetrics())
	before := runtime.NumGoroutine()
	for range 100 {
		s.Dial(addressOf(1), &front{}).Cancel()
	}
	sinktest.Eventually(t, "no dial waits", func() bool { return runtime.NumGoroutine() <= before })
	f := &front{}
	s.Dial(addressOf(1), f)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Shutdown(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answers != 1 || f.err == nil || f.err.Code != tunnel.CodeNoAgent {
		t.Errorf("after Shutdown there are %d answers, the last is %v", f.answers, f.err)
	}
}
