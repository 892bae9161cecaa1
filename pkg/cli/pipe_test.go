// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// envMark makes this test binary the program; its value is the file that "change" makes.
const envMark = "CLI_TEST_MARK"

func TestMain(m *testing.M) {
	if os.Getenv(envMark) == "" {
		os.Exit(daemontest.RunParallel(m, 4))
	}
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(run(withRollback(streams), os.Args[1:], streams))
}

// withRollback is the root command with an additional command that makes a change
// and, when it is interrupted, prints a message and undoes the change.
func withRollback(streams genericiooptions.IOStreams) *cobra.Command {
	root := NewCommand(streams)
	root.AddCommand(&cobra.Command{Use: "change", RunE: func(cmd *cobra.Command, _ []string) error {
		mark := os.Getenv(envMark)
		if err := os.WriteFile(mark, nil, 0o600); err != nil {
			return err
		}
		err := progress.Step(ui.NewProgress(streams.ErrOut, false), "Waiting", func() (string, error) {
			<-cmd.Context().Done()
			return "", context.Cause(cmd.Context())
		})
		return errors.Join(err, os.Remove(mark))
	}})
	return root
}

// program starts the program with stdout and stderr connected to a pipe. unread closes
// the read end of the pipe.
func program(t *testing.T, mark string, args ...string) (cmd *exec.Cmd, unread func()) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), envMark+"="+mark)
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	return cmd, func() { r.Close() }
}

func ended(t *testing.T, cmd *exec.Cmd) syscall.WaitStatus {
	t.Helper()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// TestInterruptWithPipe: Ctrl-C in "fairlead ... 2>&1 | tee log" ends tee first. The
// command then writes to a broken pipe, and must still undo its changes.
func TestInterruptWithPipe(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "changed")
	cmd, unread := program(t, mark, "change")
	testutil.Eventually(t, time.Minute, func() error { _, err := os.Stat(mark); return err })
	unread()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if s := ended(t, cmd); s.Signaled() || s.ExitStatus() != 130 {
		t.Errorf("it ended with %v, want exit code 130", cmd.ProcessState)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("what was changed was not put back")
	}
}

// TestOutputUnread: with "| head" the command prints no error, but does not succeed
// either.
func TestOutputUnread(t *testing.T) {
	cmd, unread := program(t, "none", "version")
	unread()
	if s := ended(t, cmd); s.Signaled() || s.ExitStatus() != 141 {
		t.Errorf("version: %v, want exit code 141", cmd.ProcessState)
	}
}
