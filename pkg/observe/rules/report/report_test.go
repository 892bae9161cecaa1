// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"encoding/json"
	"encoding/xml"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules/report"
)

// results have one of each status, with text that a terminal and XML must not get as it is.
func results() *rules.Report {
	return &rules.Report{Cluster: "test", Version: "v1.36.3", Taken: "2027-03-01T12:00:00Z",
		Counts: map[rules.Status]int{rules.OK: 1, rules.Warning: 1, rules.Failed: 1, rules.Unknown: 1, rules.Skipped: 2, rules.Suppressed: 1},
		Checks: []rules.Result{
			{ID: "FL-API-001", Group: "A", Title: "fine", Status: rules.OK},
			{ID: "FL-API-002", Group: "A", Title: "soon", Status: rules.Warning, Findings: []rules.Finding{{Object: "Node a", Message: "its clock is wrong", Fix: "timedatectl", Warning: true}}},
			{ID: "FL-KON-001", Group: "B", Title: "broken", Status: rules.Failed, Findings: []rules.Finding{
				{Object: "Pod x", Message: "evil \x1b[31m text <&> " + strings.Repeat("many words ", 20), Fix: "kubectl get pods"}, {Object: "Pod y", Message: "hidden", Fix: "none", Suppressed: true}}},
			{ID: "FL-KON-002", Group: "B", Title: "dark", Status: rules.Unknown, Reason: "forbidden"},
			{ID: "FL-KON-003", Group: "B", Title: "later", Status: rules.Skipped, Reason: "because FL-KON-001 is failed"},
			{ID: "FL-KON-004", Group: "B", Title: "later still", Status: rules.Skipped, Reason: "because FL-KON-001 is failed"},
			{ID: "FL-KON-005", Group: "B", Title: "accepted", Status: rules.Suppressed},
		}}
}

func write(t *testing.T, format string, style report.Style) string {
	t.Helper()
	var out strings.Builder
	if err := report.Write(&out, format, results(), style); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestTable proves that a table fits the terminal's width, shows every result and its fix, puts what is skipped for one reason into one line, and
// passes no control characters on.
func TestTable(t *testing.T) {
	for _, width := range []int{40, 80, 200} {
		text := write(t, "table", report.Style{Width: width})
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("width %d: a line of %d: %s", width, n, line)
			}
		}
		for _, want := range []string{"✓ FL-API-001", "! FL-API-002", "✗ FL-KON-001", "? FL-KON-002", "~ FL-KON-005", "fix: kubectl get pods", "1 failed"} {
			if !strings.Contains(text, want) {
				t.Errorf("width %d: no %q in\n%s", width, want, text)
			}
		}
		if strings.Contains(text, "\x1b") || strings.Contains(text, "hidden") || strings.Contains(text, "FL-KON-004") {
			t.Errorf("control characters, suppressed findings or single skips in\n%q", text)
		}
	}
	if text := write(t, "table", report.Style{Color: true}); !strings.Contains(text, "\x1b[31m✗\x1b[0m") {
		t.Errorf("no colors in %q", text)
	}
}

// TestShort proves that the short form has only what needs attention.
func TestShort(t *testing.T) {
	text := write(t, "short", report.Style{})
	for _, unwanted := range []string{"FL-API-001", "FL-KON-003", "FL-KON-005", "Checking"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("%q in\n%s", unwanted, text)
		}
	}
	for _, want := range []string{"FL-API-002", "FL-KON-001", "FL-KON-002"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestMachines proves that JSON and JUnit can be read and say the same as the counts.
func TestMachines(t *testing.T) {
	var back rules.Report
	if err := json.Unmarshal([]byte(write(t, "json", report.Style{})), &back); err != nil || back.Counts[rules.Failed] != 1 || len(back.Checks) != 7 {
		t.Errorf("JSON: %v, %+v", err, back)
	}
	var suite struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Skipped  int `xml:"skipped,attr"`
		Cases    []struct {
			Name    string `xml:"name,attr"`
			Failure *struct {
				Text string `xml:",chardata"`
			} `xml:"failure"`
			Error   *struct{} `xml:"error"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testcase"`
	}
	text := write(t, "junit", report.Style{})
	if err := xml.Unmarshal([]byte(text), &suite); err != nil {
		t.Fatalf("JUnit: %v\n%s", err, text)
	}
	if suite.Tests != 7 || suite.Failures != 1 || suite.Errors != 1 || suite.Skipped != 3 || len(suite.Cases) != 7 {
		t.Errorf("JUnit: %+v", suite)
	}
	if c := suite.Cases[2]; c.Failure == nil || !strings.Contains(c.Failure.Text, "fix: kubectl get pods") {
		t.Errorf("JUnit: %+v", c)
	}
	if err := report.Write(&strings.Builder{}, "xml", results(), report.Style{}); err == nil {
		t.Error("an unknown format is accepted")
	}
}

// TestPartlyUnread proves that every format says both what a check found and what it could not read.
func TestPartlyUnread(t *testing.T) {
	found := []rules.Finding{{Object: "Pod x", Message: "0 agents are connected", Fix: "look", Warning: true}}
	for _, status := range []rules.Status{rules.Failed, rules.Unknown} {
		r := &rules.Report{Counts: map[rules.Status]int{status: 1}, Checks: []rules.Result{{ID: "FL-KON-005", Group: "B", Title: "connected", Status: status, Reason: "Pod y: refused", Findings: found}}}
		for _, format := range report.Formats {
			var out strings.Builder
			if err := report.Write(&out, format, r, report.Style{}); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"0 agents are connected", "Pod y: refused"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%s, %s: no %q in\n%s", status, format, want, out.String())
				}
			}
		}
	}
}

// TestCommands proves that no comment hides a command that follows it, and that sentences and fields are no commands.
func TestCommands(t *testing.T) {
	for fix, want := range map[string][]string{
		"fairlead a   # on each node; fairlead b   # once": {"fairlead a   # on each node", "fairlead b   # once"},
		"fairlead a   # there; kubeadm b if it is shared":  {"fairlead a   # there", "kubeadm b if it is shared"},
		"kubectl a   # it works; with a second half":       {"kubectl a   # it works; with a second half"},
		"Use another one":       nil,
		"scheduler.replicas: 2": nil,
	} {
		if got := report.Commands(fix); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", fix, got, want)
		}
	}
	for _, r := range rules.All() {
		page := report.Page(r)
		if n := strings.Count(page, "```"); n%2 != 0 {
			t.Errorf("%s: %d fences", r.ID, n)
		}
		for _, c := range report.Commands(r.Fix) {
			if !strings.Contains(page, "\n"+c+"\n") {
				t.Errorf("%s: %q is not a line of its own", r.ID, c)
			}
		}
	}
}
