// Package interrupt lets a command that is asked to end put away what it has made. Whoever asks, a key, a service manager
// or a terminal that is closed, and wherever its output goes, it hears it the same way: [Context] ends.
package interrupt

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Context ends with the first request to end. After stop the next one has its usual effect. From then on writing to a pipe
// that nobody reads is an error like any other, see [OutlivePipes].
func Context(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	OutlivePipes()
	return signal.NotifyContext(parent, Signals()...)
}

// Signals are those that ask a command to end. A closed terminal is no request to one that nohup has started.
func Signals() []os.Signal {
	list := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	return list
}

// OutlivePipes makes writing to a pipe that nobody reads an error also on standard output and standard error, where Go
// would end the program: Ctrl-C ends "| tee", too, and the first word about cleaning up must not be the last. The signal is
// caught and not ignored: other programs would inherit the latter.
func OutlivePipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
