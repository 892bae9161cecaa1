// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// busyVariable names the environment variable that makes this program a busy loop for the time that it holds.
const busyVariable = "FAIRLEAD_FLAKES_BUSY"

// busyIfAsked does not return in a process of startLoad. It ends after its time, and when the process that started it has gone,
// because that closes standard input.
func busyIfAsked() {
	value := os.Getenv(busyVariable)
	if value == "" {
		return
	}
	limit, err := time.ParseDuration(value)
	if err != nil {
		fmt.Fprintf(os.Stderr, "flakes: %s: %v\n", busyVariable, err)
		os.Exit(1)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for end := time.Now().Add(limit); time.Now().Before(end); {
		for range 1_000_000 {
		}
	}
	os.Exit(0)
}

// startLoad starts processes that each use one processor, for at most limit. The returned function ends them.
func startLoad(ctx context.Context, processes int, limit time.Duration) (stop func(), err error) {
	var ends []func()
	stop = func() {
		for _, end := range ends {
			end()
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for range processes {
		cmd := exec.CommandContext(ctx, exe)
		cmd.Env = append(os.Environ(), busyVariable+"="+limit.String(), "GOMAXPROCS=2")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C ends them through stop
		stdin, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			stop()
			return nil, fmt.Errorf("start a busy loop: %w", err)
		}
		ends = append(ends, func() {
			_ = stdin.Close()
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	return stop, nil
}
