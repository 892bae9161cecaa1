// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// scenario is a run in which everything that a reporter must print happens.
func scenario() (string, []check.Check, []check.Result, *check.Report) {
	checks := []check.Check{
		{ID: "api-server", Title: "API server is ready"},
		{ID: "tunnel-exec", Title: "Exec goes through the tunnel"},
		{ID: "tunnel-webhook", Title: "Webhook behind a Service is called through the tunnel"},
		{ID: "scheduler-failover", Title: "After killing the leader another replica leads", Disruptive: true},
		{ID: "scheduler-pending", Title: "Pods wait", Disruptive: true},
	}
	results := []check.Result{
		{ID: checks[0].ID, Title: checks[0].Title, Status: check.OK, Seconds: 0.012, Details: map[string]string{"version": "v1.36.3", "unseen": "x"}},
		{ID: checks[1].ID, Title: checks[1].Title, Status: check.Failed, Seconds: 1.5, Error: "the call failed: <no> \"agent\" & \x00\x1b", Hint: "are agents running?", Details: map[string]string{"node": "node-0"}},
		{ID: checks[2].ID, Title: checks[2].Title, Status: check.Failed, Seconds: 30, Error: "first line\nsecond line"},
		{ID: checks[3].ID, Title: checks[3].Title, Disruptive: true, Status: check.OK, Seconds: 22.1, Details: map[string]string{"takeover": "12.4 s (limit 17s)"}},
		{ID: checks[4].ID, Title: checks[4].Title, Disruptive: true, Status: check.Skipped, Error: "stopping it is not supported"},
	}
	report := &check.Report{
		APIVersion: "fairlead.dev/v1alpha1", Kind: "CheckReport", Cluster: "fairlead-test", Started: "2026-01-02T03:04:05Z", Seconds: 53.612,
		Passed: 2, Failed: 2, Skipped: 1, Checks: results, NotAsked: []string{"tunnel-agents-down"},
	}
	return "fairlead-test", checks, results, report
}

func play(t *testing.T, rep check.Reporter) {
	t.Helper()
	cluster, checks, results, report := scenario()
	rep.Begin(cluster, checks)
	for i, r := range results {
		rep.Start(checks[i])
		rep.Finish(r)
	}
	if err := rep.End(report); err != nil {
		t.Fatal(err)
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got), -update rewrites it:\n%s", path, diff)
	}
}

func TestGolden(t *testing.T) {
	for file, newReporter := range map[string]func(*bytes.Buffer) (check.Reporter, error){
		"plain.txt":   func(b *bytes.Buffer) (check.Reporter, error) { return New("", b, false, false) },
		"color.txt":   func(b *bytes.Buffer) (check.Reporter, error) { return New("text", b, false, true) },
		"report.json": func(b *bytes.Buffer) (check.Reporter, error) { return New("json", b, true, true) },
		"junit.xml":   func(b *bytes.Buffer) (check.Reporter, error) { return New("junit", b, true, true) },
	} {
		t.Run(file, func(t *testing.T) {
			var out bytes.Buffer
			rep, err := newReporter(&out)
			if err != nil {
				t.Fatal(err)
			}
			play(t, rep)
			golden(t, file, out.Bytes())
		})
	}
}

func TestUnknownFormat(t *testing.T) {
	if _, err := New("yaml", &bytes.Buffer{}, false, false); !errors.Is(err, check.ErrUsage) || !strings.Contains(err.Error(), "text, json, junit") {
		t.Errorf("got %v", err)
	}
}

func TestPlainHasNoEscapes(t *testing.T) {
	var out bytes.Buffer
	rep, _ := New("text", &out, false, false)
	cluster, checks, results, report := scenario()
	rep.Begin(cluster, checks)
	for i, r := range results {
		rep.Start(checks[i])
		rep.Finish(r)
	}
	_ = rep.End(report)
	if strings.ContainsAny(out.String(), "\x1b\r") {
		t.Errorf("escapes in plain output: %q", out.String())
	}
}

func TestLiveLineIsErased(t *testing.T) {
	for color, erased := range map[bool]string{true: "\r\x1b[K", false: "\r" + strings.Repeat(" ", len(" x A title 0 s")) + "\r"} {
		synctest.Test(t, func(t *testing.T) { testLiveLineIsErased(t, color, erased) })
	}
}

func testLiveLineIsErased(t *testing.T, color bool, erased string) {
	var out bytes.Buffer
	text := NewText(&out, true, color)
	text.Begin("c", nil)
	text.Start(check.Check{ID: "a", Title: "A title"})
	time.Sleep(30 * time.Millisecond)
	text.Finish(check.Result{ID: "a", Title: "A title", Status: check.OK})
	shown := out.String()
	begin, last, found := strings.Cut(shown, erased+" ")
	if color {
		begin, last, found = shown[:strings.LastIndex(shown, erased)], shown[strings.LastIndex(shown, erased):], true
	}
	if !found || !strings.Contains(begin, "⠋ A title") || strings.Contains(last, "⠋") || !strings.Contains(last, "A title") || !color && strings.Contains(shown, "\x1b") {
		t.Errorf("live line: %q", shown)
	}
}

func TestJUnitParsesBack(t *testing.T) {
	var out bytes.Buffer
	rep, _ := New("junit", &out, false, false)
	play(t, rep)
	var got junitSuites
	if err := xml.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("not XML: %v\n%s", err, out.String())
	}
	suite := got.Suites[0]
	if suite.Tests != 5 || suite.Failures != 2 || suite.Skipped != 1 || len(suite.Cases) != 5 {
		t.Errorf("totals: %+v", suite)
	}
	failure := suite.Cases[1].Failure
	if failure == nil || failure.Message != "the call failed: <no> \"agent\" & ??" || failure.Text != "are agents running?" {
		t.Errorf("failure: %+v", failure)
	}
	if suite.Cases[0].Failure != nil || suite.Cases[4].Skipped == nil || suite.Cases[3].SystemOut != "takeover: 12.4 s (limit 17s)" {
		t.Errorf("cases: %+v", suite.Cases)
	}
}

// TestJSONIsOneDocument runs real checks, so that the fields are those that Run fills in.
func TestJSONIsOneDocument(t *testing.T) {
	var out bytes.Buffer
	rep, _ := New("json", &out, false, false)
	_, err := check.Run(t.Context(), &check.Env{Config: &rest.Config{Host: "https://127.0.0.1:1"}, Cluster: "c"}, check.Options{Checks: []check.Check{
		{ID: "a", Title: "A", Run: func(_ context.Context, s *check.Scope) error { s.Detail("k", "v"); return nil }},
		{ID: "b", Title: "B", Run: func(context.Context, *check.Scope) error { return check.WithHint(errors.New("bad"), "do this") }},
	}}, rep)
	if err != nil {
		t.Fatal(err)
	}
	var got check.Report
	dec := json.NewDecoder(&out)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if dec.More() || got.Kind != "CheckReport" || got.Checks[0].Details["k"] != "v" || got.Checks[1].Hint != "do this" {
		t.Errorf("got %+v", got)
	}
}

// TestWarnings: a check that passed with a warning is marked, and the warning is printed.
func TestWarnings(t *testing.T) {
	for warning, want := range map[string][]string{
		"":                   {" ✓ A title"},
		"set it up: do this": {" ! A title", "warning: set it up: do this"},
	} {
		var out bytes.Buffer
		r := check.Result{ID: "a", Title: "A title", Status: check.OK}
		if warning != "" {
			r.Warnings = []string{warning}
		}
		NewText(&out, false, false).Finish(r)
		for _, text := range want {
			if !strings.Contains(out.String(), text) || strings.Contains(out.String(), "warning:") != (warning != "") {
				t.Errorf("want %q: %s", text, out.String())
			}
		}
	}
}
