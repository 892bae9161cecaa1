// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
)

func line(action, test, output string) string {
	return fmt.Sprintf(`{"Action":%q,"Package":"p","Test":%q,"Output":%q}`+"\n", action, test, output)
}

// TestReport: every test counts once, by its last result, and skipped tests by what they logged.
func TestReport(t *testing.T) {
	t.Parallel()
	r := newReport()
	text := line("run", "TestA", "") + line("pass", "TestA", "") +
		line("output", "TestB", "    b_test.go:7: nc is not installed\n") + line("output", "TestB", "--- SKIP: TestB (0.00s)\n") + line("skip", "TestB", "") +
		line("output", "TestC/x", "    c_test.go:7: only in make test-all: kills the program\n") + line("skip", "TestC/x", "") + line("pass", "TestC", "") +
		line("skip", "TestD", "") + line("fail", "TestE", "") +
		"not an event\n" + line("fail", "", "") +
		`{"Action":"pass","Package":"q"}` + "\n" + `{"Action":"skip","Package":"r"}` + "\n"
	if err := r.read(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	want := `2 packages, 5 tests and 1 subtests: 1 failed, 3 skipped
     1 skipped: nc is not installed
     1 skipped: no reason given
     1 skipped: only in make test-all`
	if got := r.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestNothingRan: a package whose tests were all skipped is named.
func TestNothingRan(t *testing.T) {
	t.Parallel()
	r := newReport()
	if err := r.read(strings.NewReader(line("skip", "TestA", "") + line("pass", "", ""))); err != nil {
		t.Fatal(err)
	}
	if got := r.String(); !strings.Contains(got, "no test of this package ran to its end: p") {
		t.Error(got)
	}
}

// TestFlaky: a test that failed and then passed is flaky, but not one that only failed because of such a subtest.
func TestFlaky(t *testing.T) {
	t.Parallel()
	r := newReport()
	text := line("fail", "TestA/x", "") + line("fail", "TestA", "") + line("fail", "TestB", "") + line("fail", "TestC", "") + line("pass", "TestD", "") +
		line("pass", "TestA/x", "") + line("pass", "TestA", "") + line("pass", "TestB", "") + line("fail", "TestC", "")
	if err := r.read(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.flaky(), ", "); got != "p TestA/x, p TestB" {
		t.Error(got)
	}
}

// TestBrokenInput: a cut line is an error that names it.
func TestBrokenInput(t *testing.T) {
	t.Parallel()
	if err := newReport().read(strings.NewReader(line("pass", "TestA", "") + `{"Action":`)); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Error(err)
	}
	if err := run("", []string{"/nonexistent"}); err == nil {
		t.Error("a missing file is no error")
	}
}
