// SPDX-License-Identifier: Apache-2.0

// Command testlimit runs a test binary and ends it when one of its tests hangs:
//
//	go test -v -exec 'testlimit -limit 60s' ./...
//
// It reads the names of the tests that run from the output of -v or -json, and passes the output on. A test is taken to hang
// when it has run for the limit, without the time of its subtests and the time for which a parallel test waits for its turn.
// The binary then gets SIGQUIT and prints its goroutines, so the output names the test and shows where it waits. `go test`
// knows a limit for a whole binary only, and names no test.
//
// The limit holds for an idle machine. On a machine with more runnable processes than processors, time counts for less: with eight
// processes on two processors, the limit is four times as long.
//
// A test that needs longer prints "=== LIMIT NAME DURATION": see Limit in internal/testutil.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// drain is how long the output is read on after the binary has ended: a process that it left behind can hold the pipe.
const drain = 5 * time.Second

func main() {
	limit := flag.Duration("limit", time.Minute, "how long a test may run on an idle machine")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Usage: go test -v -exec 'testlimit [-limit 60s]' PACKAGES")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 || *limit <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	code, err := run(os.Stdout, *limit, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "testlimit:", err)
	}
	os.Exit(code)
}

// run returns the exit code of the test binary.
func run(out io.Writer, limit time.Duration, args []string) (int, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 1, err
	}
	defer r.Close()
	cmd := exec.Command(args[0], args[1:]...) //nolint:noctx // signals are passed on
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, w, w
	cmd.SysProcAttr = diesWithParent()
	// The kernel sends the signal when the thread ends that started the process.
	runtime.LockOSThread()
	err = cmd.Start()
	w.Close()
	if err != nil {
		return 1, fmt.Errorf("start the test binary: %w", err)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)
	defer signal.Stop(signals)

	out = &lockedWriter{out: out}
	watch := newWatch(limit)
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_ = watch.copy(out, r) // the pipe's end
	}()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s)
		case now := <-tick.C:
			if text := watch.advance(time.Duration(float64(now.Sub(last)) / contention())); text != "" {
				fmt.Fprintf(out, "\ntestlimit: %s: the goroutines of the test binary follow\n", text)
				_ = cmd.Process.Signal(syscall.SIGQUIT)
				time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
			}
			last = now
		case err := <-ended:
			_ = r.SetReadDeadline(time.Now().Add(drain))
			<-copied
			return exitCode(err)
		}
	}
}

// lockedWriter lets the report of a hang and the copied output follow each other.
type lockedWriter struct {
	mu  sync.Mutex
	out io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(p)
}

func exitCode(err error) (int, error) {
	exit := (*exec.ExitError)(nil)
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode(), nil
	default:
		return 1, err
	}
}

// contention is how many processes want each processor, at least 1: see proc_loadavg(5).
func contention() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 1
	}
	first, _, _ := strings.Cut(string(data), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 1
	}
	return max(1, load/float64(runtime.NumCPU()))
}
