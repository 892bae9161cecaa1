// SPDX-License-Identifier: Apache-2.0

//go:build linux && amd64

package main

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestClock: a program, one of its threads and its child processes see the other time, and its exit code arrives.
func TestClock(t *testing.T) {
	self := filepath.Join(t.TempDir(), "testpod")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", self, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, c := range map[string]struct {
		offset time.Duration
		args   []string
	}{
		"static program": {time.Hour, []string{self, "time"}},
		"program of C":   {-time.Hour, []string{"date", "-u", "+%Y-%m-%dT%H:%M:%SZ"}},
		"child process":  {time.Hour, []string{"sh", "-c", "true; " + self + " time; true"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := time.Now().Truncate(time.Second)
			out, err := exec.CommandContext(t.Context(), self, append([]string{"clock", c.offset.String()}, c.args...)...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			got, err := time.Parse(time.RFC3339, strings.TrimSpace(string(out)))
			if err != nil || got.Before(before.Add(c.offset)) || got.After(time.Now().Add(c.offset)) {
				t.Errorf("it printed %q at %s (%v)", out, before.UTC(), err)
			}
		})
	}
	err := exec.CommandContext(t.Context(), self, "clock", "1h", self, "exit", "7").Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("got %v, want the exit code 7", err)
	}
}
