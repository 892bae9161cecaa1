// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

// TestOnlyShowsWhy proves that the report of selected checks has those that failed or are unknown and for which a selected one is skipped, with
// all between them, and no others: it is no success because nothing could be checked.
func TestOnlyShowsWhy(t *testing.T) {
	down := func(w *world) { w.Reach = observe.Fact[observe.Connection]{Err: errors.New("connection refused")} }
	noServer := func(w *world) { w.find(check.RoleServer).Ready = false }
	for name, tc := range map[string]struct {
		do       func(w *world)
		only     string
		suppress []string
		want     string // the IDs with what is not "ok"
		fails    rules.Status
	}{
		"well":                 {func(*world) {}, "FL-KON-005", nil, "FL-KON-005", ""},
		"down":                 {down, "FL-CRT-00[345]", nil, "FL-API-001 failed, FL-CRT-003 skipped, FL-CRT-004 skipped, FL-CRT-005 skipped", rules.Failed},
		"skip by hand":         {down, "FL-CRT-001", nil, "FL-API-001 failed, FL-CRT-001 skipped", rules.Failed},
		"clock":                {down, "FL-API-006", nil, "FL-API-001 failed, FL-API-006 skipped", rules.Failed},
		"no need":              {down, "FL-API-008", nil, "FL-API-008", ""},
		"selected already":     {down, "FL-API-00[12]", nil, "FL-API-001 failed, FL-API-002 skipped", rules.Failed},
		"accepted":             {down, "FL-CRT-003", []string{"FL-API-001"}, "FL-API-001 suppressed, FL-CRT-003 skipped", ""},
		"another is accepted":  {down, "FL-CRT-003", []string{"FL-CRT-*"}, "FL-API-001 failed, FL-CRT-003 skipped", rules.Failed},
		"not if it fails":      {noServer, "FL-KON-011", nil, "FL-KON-002 failed, FL-KON-011 skipped", rules.Failed},
		"unknown":              {func(w *world) { w.Programs.Err = errors.New("pods is forbidden") }, "FL-KON-005", nil, "FL-KON-001 unknown, FL-KON-005 skipped", rules.Unknown},
		"chain":                {func(w *world) { w.without(check.RoleAgent) }, "FL-KON-005", nil, "FL-KON-003 skipped, FL-KON-004 failed, FL-KON-005 skipped", rules.Failed},
		"a later check":        {func(w *world) { w.without(check.RoleAgent) }, "FL-KON-003", nil, "FL-KON-003 skipped, FL-KON-004 failed", rules.Failed},
		"does not apply":       {func(w *world) { w.Node.Err = check.Skip("not a control plane node") }, "FL-HST-002", nil, "FL-HST-002 skipped", ""},
		"needs what is absent": {func(w *world) { w.Programs.Value, w.Deployments.Value = nil, nil }, "FL-SCH-003", nil, "FL-SCH-003 skipped", ""},
	} {
		w := healthy(t)
		tc.do(w)
		r := rules.Judge(w.Snapshot, rules.Options{Only: []string{tc.only}, Suppress: tc.suppress})
		var got []string
		for _, c := range r.Checks {
			got = append(got, strings.TrimSuffix(c.ID+" "+string(c.Status), " "+string(rules.OK)))
		}
		if diff := cmp.Diff(strings.Split(tc.want, ", "), got); diff != "" {
			t.Errorf("%s: want (-), got (+):\n%s", name, diff)
		}
		for _, threshold := range []rules.Status{rules.Failed, rules.Unknown, rules.Warning} {
			want := tc.fails == "" || tc.fails == rules.Unknown && threshold == rules.Failed
			if got := r.Success(threshold); got != want {
				t.Errorf("%s: success by %s: %v, want %v", name, threshold, got, want)
			}
		}
	}
}
