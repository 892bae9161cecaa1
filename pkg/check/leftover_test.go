// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLeftovers proves that every run reports the parts that a killed run left stopped, and that a disruptive run
// restores them first.
func TestLeftovers(t *testing.T) {
	tests := map[string]struct {
		found      []string
		look       error
		restore    error
		disruptive bool
		only       string
		status     Status // "" for no such check
		want       string
		hint       string
		restored   int
	}{
		"nothing left":              {},
		"nothing left, disruptive":  {disruptive: true},
		"quick run says so":         {found: []string{"the scheduler"}, status: Failed, want: "stopped the scheduler and was killed", hint: "--disruptive, which restores it first, or: start the scheduler"},
		"with a selection too":      {found: []string{"the scheduler"}, only: "^a$", status: Failed, want: "stopped the scheduler"},
		"two parts":                 {found: []string{"the scheduler", "the agents"}, status: Failed, want: "the scheduler and the agents", hint: "start the scheduler; start the agents"},
		"disruptive run heals":      {found: []string{"the scheduler", "the agents"}, disruptive: true, status: OK, restored: 2},
		"cannot be put back":        {found: []string{"the scheduler"}, disruptive: true, restore: errors.New("no quota"), status: Failed, want: "restore the scheduler: no quota", hint: "start the scheduler", restored: 1},
		"looking for it is refused": {look: errors.New("forbidden"), status: Failed, want: "forbidden"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			env := newStubAPI(t).env(t)
			restored := 0
			env.Leftovers = func(context.Context) ([]Leftover, error) {
				var out []Leftover
				for _, what := range tc.found {
					out = append(out, Leftover{What: what, Remedy: "start " + what, Restore: func(context.Context) error { restored++; return tc.restore }})
				}
				return out, tc.look
			}
			opts := Options{Checks: []Check{checkOf("a", passes)}, Disruptive: tc.disruptive}
			if tc.only != "" {
				opts.Only = regexp.MustCompile(tc.only)
			}
			report, err := Run(t.Context(), env, opts, &quiet{})
			if err != nil || restored != tc.restored || report.Checks[len(report.Checks)-1].ID != "a" {
				t.Fatalf("%v, restored %d, %+v", err, restored, report)
			}
			if tc.status == "" {
				if diff := cmp.Diff(1, len(report.Checks)); diff != "" {
					t.Error(diff)
				}
				return
			}
			got := report.Checks[0]
			if got.ID != leftoverID || got.Status != tc.status || !strings.Contains(got.Error, tc.want) || !strings.Contains(got.Hint, tc.hint) || report.Success() != (tc.status == OK) {
				t.Errorf("got %+v", got)
			}
			if (got.Details["restored"] != "") != (tc.status == OK) {
				t.Errorf("details: %v", got.Details)
			}
		})
	}
}
