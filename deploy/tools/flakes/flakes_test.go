// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
)

func TestMain(m *testing.M) {
	busyIfAsked()
	os.Exit(m.Run())
}

// fileVariable names the environment variable that tells the tests of the module about a file for them.
const fileVariable = "FLAKES_FILE"

// module copies testdata/module to a directory, so that the go.mod is none of this repository.
func module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/module")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/tiny\n\ngo 1.26\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// flakes runs the command on the module and returns what it prints and the report.
func flakes(ctx context.Context, t *testing.T, args ...string) (failed bool, stdout, reported string, err error) {
	t.Helper()
	t.Setenv("GOWORK", "off")
	t.Setenv("FAIRLEAD_TEST_LAYER", "")
	if os.Getenv(fileVariable) == "" {
		t.Setenv(fileVariable, filepath.Join(t.TempDir(), "file"))
	}
	report := filepath.Join(t.TempDir(), "out", "flakes.txt")
	out := &lockedBuilder{}
	failed, err = run(ctx, append([]string{"--dir", module(t), "--out", report, "--seed", "7", "--load", "2"}, args...), out)
	data, readErr := os.ReadFile(report)
	if err == nil && readErr != nil {
		t.Error(readErr)
	}
	return failed, out.String(), string(data), err
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func contain(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}

// A test that fails in two of four rounds is reported with its seed, conditions, command and output; one that passes is not.
func TestByChance(t *testing.T) {
	failed, out, report, err := flakes(t.Context(), t, "-n", "4", "--packages", "./half,./good", "--race", "never")
	if err != nil || !failed {
		t.Errorf("failed: %v, %v", failed, err)
	}
	contain(t, report,
		"round 2 of 4: seed 8: 2 packages, 2 tests, 1 failed",
		"FAIL example.com/tiny/half TestHalf/sometimes\n    round 2, seed 8\n",
		"FAIRLEAD_TEST_LAYER=main go test -count=1 -shuffle=8 -run='^TestHalf$' example.com/tiny/half\n",
		"the file was there",
		"round 3 of 4: seed 9, beside 2 busy loops, GOMAXPROCS=1: 2 packages, 2 tests, 0 failed",
		"FAIL example.com/tiny/half TestHalf/sometimes\n    round 4, seed 10, beside 2 busy loops\n",
		"failed in 2 of 4 rounds: example.com/tiny/half TestHalf/sometimes\n4 rounds, 2 packages, 2 tests each: 1 failed by chance\n")
	for _, wrong := range []string{"TestGood", "TestHalf\n", "always"} {
		if strings.Contains(report, wrong) {
			t.Errorf("%q is in:\n%s", wrong, report)
		}
	}
	if out != report {
		t.Errorf("standard output differs from the report:\n%s", out)
	}
}

// Nothing failed: the exit code is that of success, and the last line counts.
func TestNothing(t *testing.T) {
	for layer, tests := range map[string]string{layerUnit: "1", layerMain: "1", layerAll: "2"} {
		failed, out, _, err := flakes(t.Context(), t, "-n", "1", "--packages", "./good", "--layer", layer)
		if want := "1 rounds, 1 packages, " + tests + " tests each: 0 failed by chance"; failed || err != nil || lastLine(out) != want {
			t.Errorf("layer %s: failed: %v, %v, last line %q, want %q", layer, failed, err, lastLine(out), want)
		}
	}
}

// What ends a test binary is a failure of the test that was running, and what does not compile one of its package.
func TestEndsOfPackages(t *testing.T) {
	failed, _, report, err := flakes(t.Context(), t, "-n", "1", "--timeout", "3s", "--race", "never")
	if err != nil || !failed {
		t.Errorf("failed: %v, %v", failed, err)
	}
	contain(t, report,
		"5 packages, ", " 3 failed",
		"FAIL example.com/tiny/broken (build)\n", "undefined: undefined",
		"FAIL example.com/tiny/hang TestHangs/inside\n", "waits for ever", "panic: test timed out after 3s",
		"FAIL example.com/tiny/panics TestPanics\n", "assignment to entry in nil map")
	for _, wrong := range []string{"TestBeside\n", "TestHangs\n", "TestEnds\n"} {
		if strings.Contains(report, wrong) {
			t.Errorf("%q is in:\n%s", wrong, report)
		}
	}
}

// The race detector is used in every second round, with the packages that are given for it.
func TestRace(t *testing.T) {
	testutil.Full(t, "compiles the standard library for the race detector")
	if _, err := compiler(t.Context()); err != nil {
		t.Skip("needs a C compiler: ", err)
	}
	failed, out, _, err := flakes(t.Context(), t, "-n", "2", "--packages", "./half,./good", "--race-packages", "./good")
	if failed || err != nil {
		t.Errorf("failed: %v, %v", failed, err)
	}
	contain(t, out, "round 1 of 2: seed 7: 2 packages", "round 2 of 2: seed 8, -race: 1 packages")
}

// Ctrl-C ends a round that hangs. What was running is no failure, and the report has what there is.
func TestInterrupt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	t.Setenv(fileVariable, file)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(file); err == nil {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	failed, out, report, err := flakes(ctx, t, "-n", "4", "--packages", "./hang", "--race", "never")
	if failed || err == nil || err.Error() != "interrupted" {
		t.Errorf("failed: %v, %v\n%s", failed, err, out)
	}
	contain(t, report, "1 tests, 0 failed", "not complete\n", "0 of 4 rounds and a part of one", ": 0 failed by chance\n")
}

// A time limit for all rounds is no failure: the last line says how many there were. It holds for compiling, too.
func TestLimit(t *testing.T) {
	failed, out, _, err := flakes(t.Context(), t, "-n", "4", "--packages", "./hang", "--race", "never", "--limit", "3s")
	if failed || err != nil {
		t.Errorf("failed: %v, %v", failed, err)
	}
	contain(t, lastLine(out), "0 of 4 rounds and a part of one")
}

func TestBadFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"-n=0": "at least 1", "--load=65": "0 to 64", "--limit=0s": "more than 0", "--layer=x": "unit, main, or all",
		"--race=x": "auto, never, or only", "./x": "with --packages", "--packages=./nothing": "no package with tests",
	} {
		if _, _, _, err := flakes(t.Context(), t, flag); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", flag, err, want)
		}
	}
}

// The conditions of twelve rounds have all combinations.
func TestConditions(t *testing.T) {
	seen := map[conditions]bool{}
	for round := 1; round <= 12; round++ {
		c := conditionsOf(round, &options{race: raceAuto, load: 8, seed: 1}, true)
		c.round, c.seed = 0, 0
		seen[c] = true
	}
	if len(seen) != 8 {
		t.Errorf("%d combinations, want 8: %v", len(seen), seen)
	}
}

// A busy loop ends when the program that started it does, even if that was killed: its standard input is closed.
func TestBusyLoopEnds(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), busyVariable+"=10m")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Error("it does not run:", err)
	}
	_ = stdin.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it still runs")
	}
}

// Of a long output, the beginning and the end are kept.
func TestLongOutput(t *testing.T) {
	o := output{}
	for range 100_000 {
		o.add("0123456789\n")
	}
	o.add("end\n")
	text := o.String()
	if len(text) > maxOutput+100 || !strings.HasPrefix(text, "0123456789\n") || !strings.HasSuffix(text, "0123456789\nend\n") {
		t.Errorf("%d bytes", len(text))
	}
	contain(t, text, "bytes are left out")
}

type lockedBuilder struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuilder) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuilder) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
