// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
)

// load is a process that keeps n connections busy: "bench-tunnel load <kind of
// route> <socket or port> <address> <n>". A load in the process that measures
// would measure how Go's scheduler shares that process: it polls the network only
// when nothing can run, or every 10 ms, also without any tunnel.
type load struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

// startLoad returns when n downloads are running.
func startLoad(via route, addr string, n int) (*load, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	l := &load{cmd: exec.CommandContext(context.Background(), exe, "load", via.kind, via.at, addr, strconv.Itoa(n))}
	l.cmd.Stderr = os.Stderr
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if l.stdin, err = l.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := l.cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "running\n" {
		l.stop()
		return nil, fmt.Errorf("the load did not start: %q, %w", line, err)
	}
	return l, nil
}

func (l *load) stop() {
	_ = l.stdin.Close()
	_ = l.cmd.Wait()
}

// runLoad is the process. It ends with the parent.
func runLoad(args []string) error {
	n, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	if args[0] == stormKind {
		return runStorm(args[1], args[2], n)
	}
	var total atomic.Int64
	if _, err := openMany(route{args[0], args[1]}.dialer(), args[2], n, opSource, pumping(opSource, &total)); err != nil {
		return err
	}
	fmt.Println("running")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
