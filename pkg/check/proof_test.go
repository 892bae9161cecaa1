package check

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// TestJudge proves KON-11: only a call that raises both sides' counters counts as tunnelled.
func TestJudge(t *testing.T) {
	at := func(dials, server, packets float64) sample {
		api := apiSample{instance: 1, dials: dials, configured: true}
		return sample{api: api, apiLate: api, server: serverSample{dials: server, packets: packets, hasPackets: true}}
	}
	with := func(s sample, change func(*sample)) sample { change(&s); return s }
	tests := map[string]struct {
		kind          proofKind
		before, after sample
		want, wantErr string
		again         bool
	}{
		"both rose":                {dials, at(5, 9, 0), at(6, 10, 3), "dialled 1", "", false},
		"reused, packets rose":     {dialsOrReuses, at(5, 9, 7), at(5, 9, 9), "already open, server passed on 2", "", false},
		"reused where it must not": {dials, at(5, 9, 7), at(5, 9, 9), "", "not through the tunnel", true},
		"nothing rose":             {dialsOrReuses, at(5, 9, 7), at(5, 9, 7), "", "not through the tunnel", true},
		"API server never dialled": {dialsOrReuses, at(0, 9, 7), at(0, 9, 9), "", "not through the tunnel", true},
		"server did not rise":      {dials, at(5, 9, 7), at(6, 9, 7), "", "connected 0", true},
		"failures rose": {dials, at(5, 9, 0), with(at(6, 10, 0), func(s *sample) { s.api.failures = 1 }),
			"", "1 egress dials of the API server failed", true},
		"no egress selector": {dials, at(0, 9, 0), with(at(0, 9, 0), func(s *sample) { s.api.configured = false }),
			"", "API server has no apiserver_egress_dialer_dial_start_total", false},
		"another API server": {dials, at(5, 9, 0), with(at(6, 10, 0), func(s *sample) { s.api.instance = 2 }),
			"", "different API servers", true},
		"server's rise came from reading it": {dials, at(5, 9, 0), with(at(6, 10, 0), func(s *sample) { s.apiLate.dials = 7 }),
			"", "connected 0", true},
		"reading it dialled too": {dials, at(5, 9, 0), with(at(6, 11, 0), func(s *sample) { s.apiLate.dials = 7 }),
			"server connected 1", "", false},
		"no packets metric": {dialsOrReuses, at(5, 9, 0), with(at(5, 9, 9), func(s *sample) { s.server.hasPackets = false }),
			"", "not through the tunnel", true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := judge(tc.kind, tc.before, tc.after)
			if tc.wantErr == "" {
				if err != nil || !strings.Contains(got, tc.want) {
					t.Errorf("got %q, %v", got, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) || errors.Is(err, errMeasureAgain) != tc.again {
				t.Errorf("got %v (again: %t), want %q (again: %t)", err, errors.Is(err, errMeasureAgain), tc.wantErr, tc.again)
			}
		})
	}
}

func TestProveMeasuresAgain(t *testing.T) {
	api := newStubAPI(t)
	s := newScope(api.env(t), "x")
	tries := 0
	call := func(context.Context) error {
		api.mu.Lock()
		defer api.mu.Unlock()
		tries++
		api.dials++
		api.serverDial++
		if tries < proofAttempts {
			api.failures++ // another call of a busy cluster
		}
		return nil
	}
	if err := s.prove(t.Context(), dials, call); err != nil || tries != proofAttempts {
		t.Errorf("after %d tries: %v", tries, err)
	}
	tries = -100
	if err := s.prove(t.Context(), dials, call); err == nil || !strings.Contains(err.Error(), "failed meanwhile") {
		t.Errorf("failures that go on must fail the check: %v", err)
	}
}

func TestProveNeedsBothMetrics(t *testing.T) {
	api := newStubAPI(t)
	env := api.env(t)
	env.ServerMetrics = nil
	err := newScope(env, "x").prove(t.Context(), dials, func(context.Context) error { return nil })
	if err == nil || !strings.Contains(HintOf(err), "--server-metrics-url") {
		t.Errorf("got %v, hint %q", err, HintOf(err))
	}
	env.ServerMetrics = func(context.Context) ([]byte, error) { return nil, errors.New("refused") }
	if err := newScope(env, "x").prove(t.Context(), dials, func(context.Context) error { return nil }); err == nil {
		t.Error("unreadable metrics must fail the check")
	}
}
