// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// commandError carries the exit code of a command that has ended.
type commandError int

func (e commandError) Error() string {
	return fmt.Sprintf("the command ended with exit code %d", int(e))
}

// CommandExitCode makes fairlead end with the command's exit code, and print nothing.
func (e commandError) CommandExitCode() int { return int(e) }

// The exit codes of shells for commands that cannot be run, and what they add to the
// number of a signal that ended one.
const (
	exitNotFound   = 127
	exitNotRunning = 126
	exitSignal     = 128
)

// RunCommand runs a command with these variables in its environment, and forwards signals to
// it until it ends. Other users of the machine can read arguments, but no environment. The
// command's exit code becomes that of fairlead.
func RunCommand(ctx context.Context, streams genericiooptions.IOStreams, args []string, env map[string]string) error {
	// ctx does not end the command: one that gets SIGTERM may need time to end.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), args[0], args[1:]...)
	cmd.Env = environ(env)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = streams.In, streams.Out, streams.ErrOut
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded()...)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		_, _ = fmt.Fprintf(streams.ErrOut, "fairlead: starting the command %s: %v: check its name and $PATH\n", args[0], err)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return commandError(exitNotFound)
		}
		return commandError(exitNotRunning)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if !sentByTerminal(s) {
				_ = cmd.Process.Signal(s)
			}
		case err := <-ended:
			return exitOf(cmd, err)
		}
	}
}

// environ is this process's environment with the variables of env in place of its own.
func environ(env map[string]string) []string {
	var out []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if _, ours := env[name]; !ours {
			out = append(out, entry)
		}
	}
	for name, value := range env {
		out = append(out, name+"="+value)
	}
	return out
}

func exitOf(cmd *exec.Cmd, err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit):
		return fmt.Errorf("running the command %s: %w", cmd.Path, err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return commandError(exitSignal + int(status.Signal()))
	}
	return commandError(exit.ExitCode())
}

// forwarded are the signals that the command gets. Those that this process ignores, as
// under nohup, the command ignores too.
func forwarded() []os.Signal {
	list := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH}
	return slices.DeleteFunc(list, signal.Ignored)
}

// sentByTerminal reports whether the command has got the signal already: a terminal sends
// the signals of keys to all processes in its foreground.
func sentByTerminal(s os.Signal) bool {
	if s != os.Interrupt && s != syscall.SIGQUIT && s != syscall.SIGWINCH {
		return false
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	foreground, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}
