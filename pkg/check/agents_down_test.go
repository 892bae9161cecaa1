// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestWithoutAgents proves what the check requires of calls while no agent runs, and after the agents
// are back.
// It observes KON-11, KON-83 and KON-85 of docs/requirements.md.
func TestWithoutAgents(t *testing.T) {
	up := func(context.Context) error { return nil }
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	noAgent := func(context.Context) error { return errors.New("error dialing backend: No agent available") }
	var tries atomic.Int64
	late := func(context.Context) error { // a Service that kube-proxy has not programmed yet
		if tries.Add(1) < 3 {
			return errors.New("x509: certificate is valid for elsewhere.example.com")
		}
		return nil
	}
	vague := func(context.Context) error { return errors.New("unknown error") }
	tests := map[string]struct {
		before, down, after func(context.Context) error
		stop                error
		wantErr             string
		wantStarted         bool
	}{
		"fails clearly and recovers": {up, noAgent, up, nil, "", true},
		"works after some tries":     {late, noAgent, up, nil, "", true},
		"broken from the start":      {noAgent, noAgent, up, nil, "logs failed before any agent was stopped", false},
		"agents do not stop":         {up, noAgent, up, errors.New("refuse"), "stop the agents: refuse", true},
		"still works":                {up, up, up, nil, "logs still works with all agents stopped", true},
		"hangs":                      {up, hang, up, nil, "logs hung", true},
		"fails vaguely":              {up, vague, up, nil, "does not mention the tunnel", true},
		"does not recover":           {up, noAgent, noAgent, nil, "logs did not recover within 1s", true},
		"recovery hangs":             {up, noAgent, hang, nil, "logs did not recover", true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stage atomic.Int64
			parts := &fakeParts{
				stopAgents:  func() error { stage.Store(1); return tc.stop },
				startAgents: func() error { stage.Store(2); return nil },
			}
			env := newStubAPI(t).env(t)
			env.Parts = parts
			call := tunnelCall{"logs", func(ctx context.Context) error {
				return []func(context.Context) error{tc.before, tc.down, tc.after}[stage.Load()](ctx)
			}}
			res := runOne(t.Context(), env, checkOf("x", func(ctx context.Context, s *Scope) error {
				return s.withoutAgents(ctx, []tunnelCall{call})
			}), Options{Timeout: 20 * time.Second}.withDefaults(), shared{})
			wantResult(t, res, tc.wantErr)
			if (parts.started.Load() > 0) != tc.wantStarted {
				t.Errorf("agents started %d times", parts.started.Load())
			}
			if tc.wantErr == "" && (res.Details["recovered-after"] == "" || !strings.Contains(res.Details["down-logs"], "No agent available")) {
				t.Errorf("not measured: %v", res.Details)
			}
		})
	}
}
