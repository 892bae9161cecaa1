// SPDX-License-Identifier: Apache-2.0

// Package progress is how long commands report what they do: libraries call [Step] and
// [Note], and the command line shows them (package ui).
package progress

import "fmt"

// Reporter reports what a long command is doing. Steps do not nest.
type Reporter interface {
	// Begin starts a step, such as "Starting control plane".
	Begin(step string)
	// Detail reports what the running step is doing now; an implementation may
	// ignore it.
	Detail(format string, args ...any)
	// End finishes the running step. The result is a short addition to its line.
	// A non-nil err means that the step failed.
	End(result string, err error)
}

// Note shows a remark between steps, if the Reporter has a method for that.
func Note(r Reporter, format string, args ...any) {
	if n, ok := r.(interface{ Note(text string) }); ok {
		n.Note(fmt.Sprintf(format, args...))
	}
}

// Silent is a Reporter that shows nothing.
var Silent Reporter = silent{}

type silent struct{}

func (silent) Begin(string)          {}
func (silent) Detail(string, ...any) {}
func (silent) End(string, error)     {}

// Step runs one step and reports it.
func Step(r Reporter, title string, run func() (result string, err error)) error {
	r.Begin(title)
	result, err := run()
	r.End(result, err)
	return err
}

// Count formats a number with a noun: "1 node" or "3 nodes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Mebibytes formats an amount of memory.
func Mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
