// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestWatch: only a test that runs, without subtests that do, is taken to hang, and a test's own limit also holds for its subtests.
func TestWatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lines string
		want  string
	}{
		"runs":                  {"=== RUN   TestA\n", "TestA"},
		"ended":                 {"=== RUN   TestA\n--- PASS: TestA (0.00s)\n", ""},
		"skipped subtest":       {"=== RUN   TestA\n=== RUN   TestA/b\n    --- SKIP: TestA/b (0.00s)\n--- FAIL: TestA (0.00s)\n", ""},
		"subtest":               {"=== RUN   TestA\n=== RUN   TestA/b\n", "TestA/b"},
		"paused":                {"=== RUN   TestA\n=== PAUSE TestA\n", ""},
		"continued":             {"=== RUN   TestA\n=== PAUSE TestA\n=== CONT  TestA\n", "TestA"},
		"own limit":             {"=== RUN   TestA\n=== LIMIT TestA 2m0s\n=== RUN   TestA/b\n", ""},
		"other's limit":         {"=== RUN   TestA\n=== LIMIT TestB 2m0s\n", "TestA"},
		"framed":                {"\x16=== RUN   TestA\n", "TestA"},
		"behind an output line": {"\x16=== RUN   TestA\nno end of line\x16--- PASS: TestA (0.00s)\n", ""},
		"not a limit":           {"=== RUN   TestA\n=== LIMIT TestA soon\n", "TestA"},
	} {
		w := newWatch(time.Minute)
		for _, b := range []byte(c.lines) { // in the smallest pieces
			w.read([]byte{b})
		}
		if got := w.advance(30 * time.Second); got != "" {
			t.Errorf("%s: after 30 s: %q", name, got)
		}
		got, _, _ := strings.Cut(w.advance(31*time.Second), " ")
		if got != c.want {
			t.Errorf("%s: after 61 s: %q, want %q", name, got, c.want)
		}
		if again := w.advance(time.Hour); got != "" && again != "" {
			t.Errorf("%s: reported again: %q", name, again)
		}
	}
}

const hanging = `package hang

import "testing"

func TestPasses(t *testing.T) {}

func TestHangs(t *testing.T) {
	t.Run("for ever", func(t *testing.T) { select {} })
}
`

// TestHangingTest: go test ends with the name of the test that hangs, and its goroutines.
func TestHangingTest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module hang\n\ngo 1.26\n", "hang_test.go": hanging} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tool := filepath.Join(dir, "testlimit")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-json", "-exec", tool+" -limit 1s", ".")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		t.Fatalf("go test ended with %v:\n%s", err, out)
	}
	for _, want := range []string{"testlimit: TestHangs/for_ever has run for more than 1s", "goroutine ", `"Action":"fail","Package":"hang"`, `"Action":"pass","Package":"hang","Test":"TestPasses"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
}

// TestExitCodes: the exit code of the binary is passed on, and a binary that cannot be started is an error.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{"exit 0": 0, "exit 3": 3} {
		var out strings.Builder
		if code, err := run(&out, time.Minute, []string{"sh", "-c", "echo text; " + script}); code != want || err != nil || out.String() != "text\n" {
			t.Errorf("%s: %d, %v, %q", script, code, err, out.String())
		}
	}
	if code, err := run(&strings.Builder{}, time.Minute, []string{"/nonexistent"}); code == 0 || err == nil {
		t.Errorf("a missing binary: %d, %v", code, err)
	}
}
