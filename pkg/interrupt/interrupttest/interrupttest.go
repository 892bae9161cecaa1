// SPDX-License-Identifier: Apache-2.0

// Package interrupttest helps tests that interrupt commands.
package interrupttest

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// Waiting is the line with which a command says that it can be interrupted.
const Waiting = "waiting"

// Hear makes the commands that a test starts hear SIGINT and SIGHUP as they do in a terminal. Tests that run in the
// background of a script, or under nohup, have them ignored, and so would what they start: a program never inherits that
// a signal is caught.
func Hear(t testing.TB) {
	t.Helper()
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGINT, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(c) })
}

// Start starts a command and returns when it prints Waiting. Then it closes the read end of the output pipe.
func Start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if lines.Text() == Waiting {
			return
		}
	}
	t.Fatalf("%v never said that it waits: %v", cmd, lines.Err())
}

// CleansUp checks that a command cleans up and ends with the exit code after each signal, even if its output pipe is
// closed. The command gets the path of a file, which it must create as the last step of its clean-up.
func CleansUp(t *testing.T, code int, command func(mark string) *exec.Cmd) {
	t.Helper()
	Hear(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			mark := filepath.Join(t.TempDir(), "clean")
			cmd := command(mark)
			Start(t, cmd)
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != code {
				t.Errorf("it ended with %v, want exit code %d", err, code)
			}
			if _, err := os.Stat(mark); err != nil {
				t.Error("it has not cleaned up")
			}
		})
	}
}
