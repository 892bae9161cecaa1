// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"regexp"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/observe"
)

// TestPanic proves that a fault in one rule makes its result unknown, with the reason and the place: the others are needed all the same.
func TestPanic(t *testing.T) {
	for name, run := range map[string]func(*observe.Snapshot) ([]Finding, error){
		"the runtime's": func(s *observe.Snapshot) ([]Finding, error) { return one(s.Leases.Value[0].Name, "", ""), nil },
		"its own":       func(*observe.Snapshot) ([]Finding, error) { panic("index out of range") },
	} {
		got := judge(&observe.Snapshot{}, Rule{ID: "FL-API-001", run: run}, nil)
		if got.Status != Unknown || len(got.Findings) > 0 || !regexp.MustCompile(`index out of range.*rules/panic_test\.go:\d+: .*report`).MatchString(got.Reason) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}
