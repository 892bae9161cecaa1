// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

// Error is an error with the exit code that the process should end with.
type Error struct {
	// Code is 1 when a check failed, 2 for wrong usage or no connection.
	Code int
	Err  error
}

// Error includes the hint, because the code that prints errors does not print
// hints.
func (e *Error) Error() string {
	if hint := check.HintOf(e.Err); hint != "" {
		return e.Err.Error() + "\nhint: " + hint
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// ExitCode is for the main function.
func (e *Error) ExitCode() int { return e.Code }

func usage(format string, args ...any) error {
	return &Error{Code: 2, Err: fmt.Errorf(format, args...)}
}
