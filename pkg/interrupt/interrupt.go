// SPDX-License-Identifier: Apache-2.0

// Package interrupt lets a command clean up before a signal ends it. The signal may come from a key, a service manager
// or a terminal that is closed, and the output may go anywhere: in each case [Context] ends.
package interrupt

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Context returns a context that ends with the first of [Signals]. After stop the next signal has its usual effect. From
// the call of Context on, a write to a closed pipe returns an error like any other; see [OutlivePipes].
func Context(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	OutlivePipes()
	return signal.NotifyContext(parent, Signals()...)
}

// Signals are those that ask a command to end. SIGHUP, from a closed terminal, is one of them unless nohup started the
// command.
func Signals() []os.Signal {
	list := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	return list
}

// OutlivePipes makes a write to a closed pipe return an error on standard output and standard error too, where Go would
// otherwise end the program. Ctrl-C ends "| tee" too, and the first message about the clean-up must not end the program.
// The program catches SIGPIPE and does not ignore it, because child processes would inherit an ignored signal.
func OutlivePipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
