// SPDX-License-Identifier: Apache-2.0

// Program testpod is what the end-to-end tests run in Pods, and as a process of
// the host where nodes are simulated: a server to talk to, and the few commands
// that exec and cp need. One static binary, so that an image can be made of it
// alone.
//
// Start reading at [run]; serve.go is the server, tools.go the commands, and
// clock_linux_amd64.go runs a program that sees another time.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	args := os.Args[1:]
	// Installed as /bin/tar it is tar: kubectl cp calls that.
	if name := filepath.Base(os.Args[0]); name == "tar" {
		args = append([]string{name}, args...)
	}
	err := run(ctx, args)
	var code exitError
	if errors.As(err, &code) {
		os.Exit(int(code))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testpod:", err)
		os.Exit(1)
	}
}

// exitError is an error that is nothing but an exit code.
type exitError int

func (c exitError) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// run does what the first argument names.
func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("want serve, cat, clock, copy, exit, fetch, head, say, sum, tar, time or tty")
	}
	command, args := args[0], args[1:]
	switch command {
	case "serve":
		return serve(ctx, args)
	case "cat":
		return catAll()
	case "clock":
		return clock(ctx, args)
	case inClock:
		return enterClock(args)
	case "copy":
		return copySome(args)
	case "exit":
		return exit(args)
	case "fetch":
		return fetch(ctx, args)
	case "head":
		return head(args)
	case "say":
		fmt.Println(strings.Join(args, " "))
		return nil
	case "sum":
		return sum(args)
	case "time":
		fmt.Println(time.Now().UTC().Format(time.RFC3339))
		return nil
	case "tar":
		return tarCommand(args)
	case "tty":
		return tty()
	}
	return fmt.Errorf("no command %q", command)
}
