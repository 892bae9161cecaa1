// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

// outcome is a result, and the IDs of the rules for which it is skipped.
type outcome struct {
	Result
	because []string
}

// shown are the IDs of the rules that are selected, and of those that failed or are unknown and for which a selected one is skipped: a report
// without these would look as if all were well.
func (o Options) shown(all map[string]outcome) map[string]bool {
	out := map[string]bool{}
	var bad func(id string) bool // itself, or one for which it is skipped
	bad = func(id string) bool {
		return all[id].Status == Failed || all[id].Status == Unknown || slices.ContainsFunc(all[id].because, bad)
	}
	var show func(id string)
	show = func(id string) {
		out[id] = true
		for _, cause := range all[id].because {
			if !out[cause] && bad(cause) {
				show(cause)
			}
		}
	}
	for id := range all {
		if len(o.Only) == 0 || slices.ContainsFunc(o.Only, func(p string) bool { return match(p, id) }) {
			show(id)
		}
	}
	return out
}

// becauseError is a check.Skip because of what other rules find.
type becauseError struct {
	error
	ids []string
}

func (e *becauseError) Unwrap() error { return e.error }

// because is the error of a rule that is skipped because others failed or are unknown. The reason names them.
func because(reason error, ids ...string) error { return &becauseError{reason, ids} }

// unmet is the reason why a rule is skipped because of another.
func unmet(id string, status Status) error {
	return because(check.Skip("because %s is %s", id, status), id)
}

// before is the error with which a rule is skipped because of those that were judged before it; nil if it is to be judged.
func (r Rule) before(all map[string]outcome) error {
	for _, id := range r.Needs {
		if needed, ran := all[id]; ran && needed.Status != OK && needed.Status != Warning {
			return unmet(id, needed.Status)
		}
	}
	for _, id := range r.NotIf {
		if all[id].Status == Failed {
			return unmet(id, Failed)
		}
	}
	return nil
}
