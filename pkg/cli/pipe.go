package cli

import (
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
)

// outlivePipes makes writing to a pipe that nobody reads an error like any other,
// also on standard output and standard error, where Go would end the program. The
// signal is caught and not ignored: other programs would inherit the latter.
func outlivePipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// brokenOutput tells whether a command failed because nobody reads what it prints.
func brokenOutput(err error) bool {
	var p *fs.PathError
	return errors.As(err, &p) && p.Path == os.Stdout.Name() && errors.Is(p.Err, syscall.EPIPE)
}
