// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

// TestIDsAreNeverReused proves that IDs are unique and well-formed, that every ID that was ever issued is in use or retired, and that each rule
// says why it matters and what to do.
func TestIDsAreNeverReused(t *testing.T) {
	form := regexp.MustCompile(`^FL-[A-Z]{3}-\d{3}$`)
	var live []string
	for _, r := range rules.All() {
		if slices.Contains(live, r.ID) || !form.MatchString(r.ID) {
			t.Errorf("%q is used twice, or has another form", r.ID)
		}
		if _, ok := rules.Retired[r.ID]; ok {
			t.Errorf("%s is retired", r.ID)
		}
		if r.Why == "" || r.Fix == "" || r.Title == "" || r.Group == "" {
			t.Errorf("%s lacks words", r.ID)
		}
		for _, need := range slices.Concat(r.Needs, r.NotIf) {
			if !slices.Contains(live, need) {
				t.Errorf("%s needs %s, which does not come before it", r.ID, need)
			}
		}
		live = append(live, r.ID)
	}
	data, err := os.ReadFile("testdata/ids.txt")
	if err != nil {
		t.Fatal(err)
	}
	var issued []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			issued = append(issued, line)
		}
	}
	for id := range rules.Retired {
		live = append(live, id)
	}
	slices.Sort(live)
	slices.Sort(issued)
	if diff := cmp.Diff(issued, live); diff != "" {
		t.Errorf("testdata/ids.txt (-) is not what is in use or retired (+): append new IDs, and retire old ones:\n%s", diff)
	}
}

// TestUnknown proves that what cannot be read is unknown, with the reason, and neither passed nor failed.
func TestUnknown(t *testing.T) {
	w := healthy(t)
	w.Nodes.Err = errors.New("nodes is forbidden")
	r := rules.Judge(w.Snapshot, rules.Options{Only: []string{"FL-API-011"}})
	if got := r.Checks[0]; got.Status != rules.Unknown || got.Reason != "nodes is forbidden" {
		t.Errorf("got %+v", got)
	}
	for threshold, want := range map[rules.Status]bool{rules.Failed: true, rules.Unknown: false, rules.Warning: false} {
		if r.Success(threshold) != want {
			t.Errorf("success by %s: %v, want %v", threshold, !want, want)
		}
	}
}

// TestDown proves that without an API server one check fails, and all others of the cluster name it as the reason why they are skipped. Those of
// this machine's proxy and client certificate are made.
func TestDown(t *testing.T) {
	w := healthy(t)
	w.Reach = observe.Fact[observe.Connection]{Err: check.WithHint(errors.New("connection refused"), "start it")}
	for _, r := range rules.Judge(w.Snapshot, rules.Options{}).Checks {
		switch {
		case r.ID == "FL-API-001":
			if r.Status != rules.Failed || r.Findings[0].Fix != "start it" {
				t.Errorf("got %+v", r)
			}
		case strings.HasPrefix(r.ID, "FL-HST"):
		case r.ID == "FL-API-008" || r.ID == "FL-CRT-002":
			if r.Status != rules.OK {
				t.Errorf("%s is %s: %s", r.ID, r.Status, r.Reason)
			}
		case r.Status != rules.Skipped || r.Reason != "because FL-API-001 is failed":
			t.Errorf("%s is %s: %s", r.ID, r.Status, r.Reason)
		}
	}
}

// TestNothingInstalled proves that a cluster without tunnel and second scheduler has neither failures nor unknown results.
func TestNothingInstalled(t *testing.T) {
	w := healthy(t)
	w.Programs.Value, w.Deployments.Value, w.DaemonSets.Value = nil, nil, nil
	w.ServerMetrics, w.Shown, w.Reviews.Value = nil, nil, nil
	w.APIServers.Value["Pod kube-system/kube-apiserver-cp"] = []string{"kube-apiserver", "--kubelet-certificate-authority=/ca"}
	w.APIServerMetrics.Value = nil
	w.Node.Err = check.Skip("not a control plane node")
	r := rules.Judge(w.Snapshot, rules.Options{})
	if r.Counts[rules.Failed]+r.Counts[rules.Unknown]+r.Counts[rules.Warning] > 0 {
		t.Errorf("got %v: %+v", r.Counts, r.Checks)
	}
	for _, c := range r.Checks {
		if c.ID == "FL-KON-001" && (c.Status != rules.Skipped || !strings.Contains(c.Reason, "no tunnel")) {
			t.Errorf("got %+v", c)
		}
	}
}

// TestSuppress proves that a suppressed finding does not count, that others of the same check still do, and that a pattern for no check is refused.
func TestSuppress(t *testing.T) {
	break2 := func(o rules.Options) *rules.Report {
		w := healthy(t)
		w.Kubelets = map[string]error{"a": errors.New("no answer"), "b": errors.New("no answer")}
		return rules.Judge(w.Snapshot, o)
	}
	for _, tc := range []struct {
		suppress []string
		failed   int
		status   rules.Status
	}{
		{nil, 1, rules.Failed},
		{[]string{"FL-KON-006"}, 0, rules.Suppressed},
		{[]string{"FL-KON-*"}, 0, rules.Suppressed},
		{[]string{"FL-KON-006=Node a"}, 1, rules.Failed},
		{[]string{"FL-KON-006=Node a", "FL-KON-006=Node b"}, 0, rules.Suppressed},
		{[]string{"FL-KON-006=*"}, 0, rules.Suppressed},
		{[]string{"FL-KON-005"}, 1, rules.Failed},
	} {
		r := break2(rules.Options{Suppress: tc.suppress})
		at := slices.IndexFunc(r.Checks, func(c rules.Result) bool { return c.ID == "FL-KON-006" })
		if r.Counts[rules.Failed] != tc.failed || r.Checks[at].Status != tc.status {
			t.Errorf("%v: %d failed, %s", tc.suppress, r.Counts[rules.Failed], r.Checks[at].Status)
		}
	}
	for _, bad := range []string{"FL-KON-999", "[", ""} {
		if err := (rules.Options{Suppress: []string{bad}}).Validate(); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// TestUpstreamCluster proves that a tunnel of upstream's programs, without anything of Fairlead, is judged and not skipped.
func TestUpstreamCluster(t *testing.T) {
	w := healthy(t)
	w.all(check.RoleScheduler, func(p *observe.Program) { p.Role = check.RoleOtherScheduler })
	w.Deployments.Value, w.Reviews.Value = nil, w.Reviews.Value[1:]
	for _, role := range []check.Role{check.RoleAgent, check.RoleServer} {
		w.all(role, func(p *observe.Program) { p.Image = "registry.k8s.io/kas-network-proxy/proxy:v0.36.0" })
	}
	r := rules.Judge(w.Snapshot, rules.Options{Only: []string{"FL-KON-*", "FL-SCH-001"}})
	for _, c := range r.Checks {
		want := rules.OK
		switch c.ID {
		case "FL-KON-031": // upstream's default
			want = rules.Warning
		case "FL-KON-008", "FL-SCH-001":
			want = rules.Skipped
		}
		if c.Status != want {
			t.Errorf("%s is %s, want %s: %s %+v", c.ID, c.Status, want, c.Reason, c.Findings)
		}
	}
}
