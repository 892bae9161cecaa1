// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// TestFaultsHaveTests: each of the 21 faults has a test that exists or says what is missing, and docs/chaos.md has a row
// with its number, its bar and its gap.
func TestFaultsHaveTests(t *testing.T) {
	faults, err := load()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/chaos.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(faults) != 21 {
		t.Errorf("%d faults, want 21", len(faults))
	}
	for i, f := range faults {
		if f.ID != i+1 || f.Fault == "" || f.Bar == "" {
			t.Errorf("entry %d is %+v", i+1, f)
		}
		if len(f.Tests) == 0 && f.Gap == "" {
			t.Errorf("fault %d has neither a test nor a gap", f.ID)
		}
		if row := fmt.Sprintf("| %d | %s | %s |", f.ID, f.Fault, f.Bar); !strings.Contains(string(page), row) || !strings.Contains(string(page), f.Gap) {
			t.Errorf("docs/chaos.md lacks %q, or the gap %q", row, f.Gap)
		}
		for _, c := range f.Kind {
			if row := fmt.Sprintf("| %d | %s | ", f.ID, c); !strings.Contains(string(page), row) {
				t.Errorf("docs/chaos.md lacks %q in the table of kind", row)
			}
		}
		for _, c := range slices.Concat(f.Tests, f.Kind) {
			if strings.ContainsAny(c.Run, "()") {
				t.Errorf("fault %d: %s has parentheses, which hide that an alternative matches nothing", f.ID, c.Run)
			}
			if !exists(t, c) {
				t.Errorf("fault %d: no test of %s matches %s", f.ID, c.Dir, c.Run)
			}
		}
	}
}

// exists reports whether each alternative of the expression begins with the name of a test.
func exists(t *testing.T, c testCase) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", c.Dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunc.FindAllStringSubmatch(string(data), -1) {
			names = append(names, m[1])
		}
	}
	top, _, _ := strings.Cut(c.Run, "/")
	for alternative := range strings.SplitSeq(top, "|") {
		found := false
		for _, name := range names {
			found = found || regexp.MustCompile("^("+alternative+")").MatchString(name)
		}
		if !found {
			return false
		}
	}
	return true
}

// TestPattern: "go test -run" gets an expression for each level of subtests.
func TestPattern(t *testing.T) {
	for run, want := range map[string]string{
		"TestA|TestB$":               "^(TestA|TestB$)",
		"TestRough/.*frozen|.*while": "^(TestRough)/^(.*frozen|.*while)",
	} {
		if got := (testCase{Run: run}).pattern(); got != want {
			t.Errorf("%s: %s, want %s", run, got, want)
		}
	}
}

// TestChoose: -only and -slice choose faults that have tests, and a number that does not exist is an error.
func TestChoose(t *testing.T) {
	all := []fault{{ID: 1, Tests: []testCase{{}}, Slice: true}, {ID: 2, Tests: []testCase{{}}}, {ID: 3, Gap: "none yet"}}
	all[1].Kind = []testCase{{}}
	for _, c := range []struct {
		o    options
		want string
	}{{options{kind: true}, "2"}, {options{}, "1 2"}, {options{slice: true}, "1"}, {options{only: "2, 1"}, "1 2"}, {options{only: "2", slice: true}, ""}} {
		chosen, err := choose(all, c.o)
		var got []string
		for _, f := range chosen {
			got = append(got, fmt.Sprint(f.ID))
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %v, %v, want %s", c.o, got, err, c.want)
		}
	}
	if _, err := choose(all, options{only: "4"}); err == nil {
		t.Error("fault 4 was found")
	}
}

// TestJudge: a fault is met only if all of its tests and subtests ran and passed, and if each name in its entry matches one of them.
func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		run, text string
		err       error
		want      string
	}{
		"passed":             {"TestA", "=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\n", nil, "met"},
		"a subtest skipped":  {"TestA", "=== RUN   TestA\n--- PASS: TestA (0.00s)\n    --- SKIP: TestA/b (0.00s)\nPASS\n", nil, notRun},
		"one of two skipped": {"TestA|TestB", "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n--- SKIP: TestB (0.00s)\nPASS\n", nil, notRun},
		"one of two renamed": {"TestA|TestB", "--- PASS: TestA (0.00s)\nPASS\n", nil, notRun},
		"no test":            {"TestA", "testing: warning: no tests to run\nPASS\n", nil, notRun},
		"failed":             {"TestA", "=== RUN   TestA\n--- FAIL: TestA (0.00s)\nFAIL\n", errors.New("exit status 1"), missed},
		"subtests passed":    {"TestA/.*x|y", "--- PASS: TestA (0.00s)\n    --- PASS: TestA/y (0.00s)\n        --- PASS: TestA/y/1 (0.00s)\n    --- PASS: TestA/a_x (0.00s)\nPASS\n", nil, "met"},
		"no subtest":         {"TestA/x", "=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\n", nil, notRun},
		"a subtest renamed":  {"TestA/x|y", "--- PASS: TestA (0.00s)\n    --- PASS: TestA/y (0.00s)\nPASS\n", nil, notRun},
	} {
		if got := (testCase{Run: c.run}).judge([]byte(c.text), c.err); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	for text, want := range map[string]time.Duration{
		"unavailable for at most 120ms: 0 of 10\nunavailable for at most 2.79s: 1\n": 2790 * time.Millisecond,
		"unavailable for at most 1m2.5s\nunavailable for at most 900µs\n":            62500 * time.Millisecond,
	} {
		if got := longest([]byte(text)); got != want {
			t.Errorf("the longest unavailability in %q is %v", text, got)
		}
	}
}

// TestTooLong: an unavailability beyond the limit misses the bar, and so does one that tests were to log and did not.
func TestTooLong(t *testing.T) {
	for name, c := range map[string]struct {
		f     fault
		worst time.Duration
		want  string
	}{
		"not measured":           {fault{}, 0, ""},
		"measured":               {fault{Measured: true}, time.Hour, ""},
		"no longer measured":     {fault{Measured: true}, 0, "log no unavailability"},
		"within the limit":       {fault{Unavailable: "2s"}, 2 * time.Second, ""},
		"beyond the limit":       {fault{Unavailable: "2s"}, 2001 * time.Millisecond, "unavailable for 2.001s, and the bar is 2s"},
		"limit, and no measure":  {fault{Unavailable: "2s"}, 0, "log no unavailability"},
		"limit that is no limit": {fault{Unavailable: "2"}, time.Second, "no duration"},
	} {
		if got := c.f.tooLong(c.worst); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestMakePreparesTests: the targets that run all faults build Prometheus and tell the tests where it is. Without it, TestAlertsFire is skipped, and a
// fault whose test is skipped is not met.
func TestMakePreparesTests(t *testing.T) {
	if _, err := os.Stat("../../Makefile"); err != nil { // also lets go test run it again when the Makefile changes
		t.Fatal(err)
	}
	for _, target := range []string{"chaos", "soak-faults"} {
		out, err := exec.CommandContext(t.Context(), "make", "-n", "-C", "../..", target).Output()
		if err != nil {
			t.Fatal(err)
		}
		run := regexp.MustCompile(`(?m)^.*\bFAIRLEAD_E2E_PROMETHEUS=(\S+) .* \./e2e/chaos\b`).FindSubmatch(out)
		if run == nil {
			t.Errorf("make %s does not name Prometheus to the tests:\n%s", target, out)
			continue
		}
		dir := filepath.Dir(string(run[1]))
		if built := regexp.MustCompile(`(?m)build .* -o ` + regexp.QuoteMeta(dir) + `/ \S+/cmd/prometheus$`); !built.Match(out) {
			t.Errorf("make %s does not build %s:\n%s", target, run[1], out)
		}
	}
}

// TestKindRuns: the row of a fault is made from the part of its own tests, and those that did not run because the cluster did not come up, or were
// skipped, are not met.
func TestKindRuns(t *testing.T) {
	const text = `-test.shuffle 7
kind cluster suite-1 came up in 90s
=== RUN   TestB
=== RUN   TestB/x
    a_test.go:1: unavailable for at most 3s
--- PASS: TestB (2.50s)
    --- PASS: TestB/x (2.00s)
=== RUN   TestA
=== RUN   TestA/y
    a_test.go:2: unavailable for at most 1s
--- FAIL: TestA (1.25s)
    --- FAIL: TestA/y (1.00s)
=== RUN   TestC
--- PASS: TestC (0.01s)
=== RUN   TestD
--- SKIP: TestD (0.00s)
FAIL
`
	runs := kindRuns{"x": text, "y": "preparing the cluster of the tests: no room\n"}
	for _, c := range []struct {
		dir, run, row string
		met           bool
	}{
		{"x", "TestB", "| 1 f | met | 3s | 3s |\n", true}, // 2.5 s, rounded
		{"x", "TestA", "| 1 f | **missed** | 1s | 1s |\n", false},
		{"x", "TestC", "| 1 f | **missed** | 0s | – |\n", false}, // it logs nothing
		{"x", "TestD", "| 1 f | **not run** | 0s | – |\n", false},
		{"x", "TestE", "| 1 f | **not run** | 0s | – |\n", false},
		{"y", "TestB", "| 1 f | **not run** | 0s | – |\n", false},
		{"x", "TestB|TestA", "| 1 f | **missed** | 4s | 3s |\n", false},
	} {
		var out strings.Builder
		f := fault{ID: 1, Fault: "f", Kind: []testCase{{Dir: c.dir, Run: c.run}}}
		if met := runs.try(f, &out); met != c.met || out.String() != c.row {
			t.Errorf("%s %s: %t, %q, want %q", c.dir, c.run, met, out.String(), c.row)
		}
	}
	if got, want := together([]testCase{{Run: "TestA|TestB"}, {Run: "TestC"}, {Run: "TestC"}}), "^(TestA|TestB|TestC)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
