// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestJudge proves that only a call that raises the counters of both sides counts as tunneled.
// It observes KON-11 of docs/requirements.md.
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
		idle          float64
	}{
		"both rose":            {dials, at(5, 9, 0), at(6, 10, 3), "dialed 1 time through the tunnel, server connected 1 time", "", false, 0},
		"reused, one packet":   {dialsOrReuses, at(5, 9, 7), at(5, 9, 8), "server forwarded 1 packet (", "", false, 0},
		"reused, packets rose": {dialsOrReuses, at(5, 9, 7), at(5, 9, 9), "already open, server forwarded 2 packets (0 without the call)", "", false, 0},
		"both rose by two":     {dials, at(5, 9, 0), at(7, 11, 3), "dialed 2 times through the tunnel, server connected 2 times", "", false, 0},
		// Traffic that reading the metrics itself sends through the tunnel proves nothing.
		"reused, packets are the reading's": {dialsOrReuses, at(5, 9, 7), at(5, 9, 9), "", "not through the tunnel", true, 2},
		"reused, more than the reading's":   {dialsOrReuses, at(5, 9, 7), at(5, 9, 10), "server forwarded 3 packets (2 without", "", false, 2},
		"reused, more packets without call": {dialsOrReuses, at(5, 9, 7), at(5, 9, 9), "", "not through the tunnel", true, 3},
		"the reading's packets do no harm":  {dials, at(5, 9, 7), at(6, 10, 9), "dialed 1 time", "", false, 9},
		"reused where it must not":          {dials, at(5, 9, 7), at(5, 9, 9), "", "not through the tunnel", true, 0},
		"nothing rose":                      {dialsOrReuses, at(5, 9, 7), at(5, 9, 7), "", "not through the tunnel", true, 0},
		"API server never dialed":           {dialsOrReuses, at(0, 9, 7), at(0, 9, 9), "", "not through the tunnel", true, 0},
		"server did not rise":               {dials, at(5, 9, 7), at(6, 9, 7), "", "connected 0", true, 0},
		"the only dial failed": {dials, at(5, 9, 0), with(at(6, 10, 0), func(s *sample) { s.api.failures, s.apiLate.failures = 1, 1 }),
			"", "1 egress dials of the API server failed at the same time, and none succeeded", true, 0},
		"another dial failed while the server was read": {dials, at(5, 9, 0), with(at(6, 10, 0), func(s *sample) { s.apiLate.dials, s.apiLate.failures = 8, 2 }),
			"server connected 1 time", "", false, 0},
		"an older dial failed while the server was read": {dials, at(5, 9, 0), with(at(6, 9, 0), func(s *sample) { s.apiLate.failures = 1 }),
			"", "connected 0 times", true, 0},
		"another dial failed": {dials, at(5, 9, 0), with(at(7, 10, 0), func(s *sample) { s.api.failures, s.apiLate.failures = 1, 1 }),
			"dialed 1 time through the tunnel", "", false, 0},
		"no egress selector": {dials, at(0, 9, 0), with(at(0, 9, 0), func(s *sample) { s.api.configured = false }),
			"", "API server has no apiserver_egress_dialer_dial_start_total", false, 0},
		"another API server": {dials, at(5, 9, 0), with(at(6, 10, 0), func(s *sample) { s.api.instance = 2 }),
			"", "different API servers", true, 0},
		"server's rise came from reading it": {dials, at(5, 9, 0), with(at(6, 10, 0), func(s *sample) { s.apiLate.dials = 7 }),
			"", "connected 0", true, 0},
		"reading it dialed too": {dials, at(5, 9, 0), with(at(6, 11, 0), func(s *sample) { s.apiLate.dials = 7 }),
			"server connected 1 time", "", false, 0},
		"no packets metric": {dialsOrReuses, at(5, 9, 0), with(at(5, 9, 9), func(s *sample) { s.server.hasPackets = false }),
			"", "not through the tunnel", true, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := judge(tc.kind, tc.before, tc.after, tc.idle)
			if tc.wantErr == "" {
				if err != nil || !strings.Contains(got.how, tc.want) || got.failures != tc.after.api.failures-tc.before.api.failures {
					t.Errorf("got %+v, %v", got, err)
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
			api.dials++ // another call of a busy cluster
			api.failures++
		}
		return nil
	}
	if err := s.prove(t.Context(), dials, call); err != nil || tries != proofAttempts || s.details["failed-dials"] != "" {
		t.Errorf("a clean measurement is better; after %d tries: %v, %v", tries, err, s.details)
	}
	tries = -100
	if err := s.prove(t.Context(), dials, call); err != nil || !strings.HasPrefix(s.details["failed-dials"], "1 other egress dials") || s.details["proof"] == "" {
		t.Errorf("dials of others that fail all the time must not fail a call that was tunneled: %v, %v", err, s.details)
	}
}

// TestProofIsNotTheReading proves that a call which does not go through the tunnel is not taken for one that does because the server's metrics are
// read through the tunnel, as they are in a cluster of which only the kubeconfig is known.
// It observes KON-11 of docs/requirements.md.
func TestProofIsNotTheReading(t *testing.T) {
	api := newStubAPI(t)
	api.dials = 7
	env := api.env(t)
	env.ServerMetrics = func(ctx context.Context) ([]byte, error) {
		api.mu.Lock()
		api.packets++
		api.mu.Unlock()
		return api.serverMetrics(ctx)
	}
	s := newScope(env, "x")
	err := s.prove(t.Context(), dialsOrReuses, func(context.Context) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "not through the tunnel") {
		t.Errorf("a direct call passed: %v, %v", err, s.details)
	}
	err = s.prove(t.Context(), dialsOrReuses, func(context.Context) error {
		api.mu.Lock()
		defer api.mu.Unlock()
		api.packets++
		return nil
	})
	if err != nil {
		t.Errorf("a call over an open connection failed: %v", err)
	}
}

// If the server's metrics are not read through the API server, the API server's metrics are read once before and once after the call.
func TestProofReadsAside(t *testing.T) {
	api := newStubAPI(t)
	env := api.env(t)
	reads := 0
	env.APIServerMetrics = func(context.Context) ([]byte, error) { reads++; return []byte(api.metrics()), nil }
	for aside, want := range map[bool]int{false: 3, true: 2} {
		env.ServerMetricsAside, reads = aside, 0
		err := newScope(env, "x").prove(t.Context(), dials, func(context.Context) error {
			api.call(httptest.NewRecorder(), func() {})
			return nil
		})
		if err != nil || reads != want {
			t.Errorf("aside %t: read %d times, want %d; %v", aside, reads, want, err)
		}
		// Without a dial, the check repeats as many readings as it made around the call.
		reads = 0
		err = newScope(env, "x").prove(t.Context(), dialsOrReuses, func(context.Context) error {
			api.mu.Lock()
			defer api.mu.Unlock()
			api.packets++
			return nil
		})
		if err != nil || reads != 4 {
			t.Errorf("aside %t, connection reused: read %d times, want 4; %v", aside, reads, err)
		}
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
