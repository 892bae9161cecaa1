// SPDX-License-Identifier: Apache-2.0

// Package daemontest builds programs and runs them as the processes they will be, for tests of what can only be seen
// from outside: flags, signals, exit codes, sockets. Start at Main and Start.
package daemontest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/components"
)

// Main is what a TestMain calls when its tests share binaries: it builds the main packages with the given import paths,
// hands over the directory that holds them, runs the tests, removes the directory and returns the exit code. The tests may
// share a control plane, as with [RunShared].
func Main(m *testing.M, use func(dir string), pkgs ...string) int {
	dir, err := os.MkdirTemp("", "fairlead-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := Build(context.Background(), dir, pkgs); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	use(dir)
	return RunShared(m)
}

// raceVariable names the environment variable that has programs built with the race detector, which needs cgo.
const raceVariable = "FAIRLEAD_TEST_RACE"

// raceReport is the text that the race detector prints.
const raceReport = "WARNING: DATA RACE"

// Build compiles main packages, given by their import paths, into dir, each under the last element of its path. It uses
// the flags of every other build of this project, so that only the linking is new. With FAIRLEAD_TEST_RACE set, the race detector is built in.
func Build(ctx context.Context, dir string, pkgs []string, flags ...string) error {
	args := append([]string{"build", "-o", dir + string(filepath.Separator)}, components.Flags()...)
	args = append(append(args, flags...), pkgs...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), components.Environ()...)
	if os.Getenv(raceVariable) != "" {
		cmd.Args = slices.Insert(cmd.Args, 2, "-race")
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(cmd.Args[1:], " "), err, out)
	}
	return nil
}

// Process is a running program.
type Process struct {
	cmd    *exec.Cmd
	output lockedBuffer
	exited chan struct{}
}

// Start runs a binary with the test's environment and env on top. It is killed when the test ends; if the test failed,
// its output is logged then. A data race fails the test.
func Start(tb testing.TB, env []string, binary string, args ...string) *Process {
	tb.Helper()
	return start(tb, env, exec.Command(binary, args...))
}

// StartWith is Start with sockets that are handed to the process as systemd does it (sd_listen_fds(3)).
func StartWith(tb testing.TB, sockets []*os.File, env []string, binary string, args ...string) *Process {
	tb.Helper()
	// The process needs its own id in LISTEN_PID.
	cmd := exec.Command("sh", append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`, binary}, args...)...)
	cmd.ExtraFiles = sockets
	return start(tb, append(env, fmt.Sprintf("LISTEN_FDS=%d", len(sockets))), cmd)
}

func start(tb testing.TB, env []string, cmd *exec.Cmd) *Process {
	tb.Helper()
	binary := cmd.Path
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // ExitCode has the result
		close(p.exited)
	}()
	tb.Cleanup(func() {
		if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			tb.Errorf("kill %s: %v", filepath.Base(binary), err)
		}
		<-p.exited
		if strings.Contains(p.Output(), raceReport) {
			tb.Errorf("%s has a data race", filepath.Base(binary))
		}
		if tb.Failed() {
			tb.Logf("output of %s:\n%s", filepath.Base(binary), p.Output())
		}
	})
	return p
}

// Terminate sends SIGTERM.
func (p *Process) Terminate(tb testing.TB) {
	tb.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		tb.Fatalf("SIGTERM: %v", err)
	}
}

// Signal sends any signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Freeze sends SIGSTOP and returns when all threads have stopped: on a busy machine some run a little longer.
func (p *Process) Freeze(tb testing.TB) {
	tb.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		tb.Fatalf("SIGSTOP: %v", err)
	}
	Eventually(tb, 10*time.Second, func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
		if err != nil || len(threads) == 0 {
			return fmt.Errorf("process %d has no threads: %w", p.PID(), err)
		}
		for _, thread := range threads {
			stat, err := os.ReadFile(thread)
			if err != nil {
				return err
			}
			// The name before the state may have blanks and brackets.
			if _, state, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')'):]), " "); !strings.HasPrefix(state, "T") {
				return fmt.Errorf("%s still runs: %s", thread, stat)
			}
		}
		return nil
	})
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// ExitCode waits for the process to end and returns its exit code, -1 if a signal ended it. The test fails if the
// process is still there after the bound.
func (p *Process) ExitCode(tb testing.TB, bound time.Duration) int {
	tb.Helper()
	select {
	case <-p.exited:
	case <-time.After(bound):
		tb.Fatalf("%s still runs after %v", filepath.Base(p.cmd.Path), bound)
	}
	return p.cmd.ProcessState.ExitCode()
}

// Running says whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Output is what the process has printed so far on both of its streams.
func (p *Process) Output() string { return p.output.String() }

// Eventually is [testutil.Eventually].
func Eventually(tb testing.TB, bound time.Duration, condition func() error) {
	tb.Helper()
	testutil.Eventually(tb, bound, condition)
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(data)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
