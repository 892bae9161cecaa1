// Package interrupttest helps tests that interrupt commands.
package interrupttest

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// Hear makes the commands that a test starts hear SIGINT and SIGHUP as they do in a terminal. Tests that run in the
// background of a script, or under nohup, have them ignored, and so would what they start: a program never inherits that
// a signal is caught.
func Hear(t testing.TB) {
	t.Helper()
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGINT, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(c) })
}
