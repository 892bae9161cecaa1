// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"fmt"
)

// WithHint attaches advice to err: what the reader should do about it. A nil err stays nil. The innermost error text is unchanged.
func WithHint(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &hintError{err: err, hint: fmt.Sprintf(format, args...)}
}

// HintOf returns the outermost hint in err's chain, or "".
func HintOf(err error) string {
	var h *hintError
	if errors.As(err, &h) {
		return h.hint
	}
	return ""
}

type hintError struct {
	err  error
	hint string
}

func (e *hintError) Error() string { return e.err.Error() }
func (e *hintError) Unwrap() error { return e.err }

// Skip returns the error by which a check says that it cannot be made here. The reason is always printed.
func Skip(format string, args ...any) error {
	return &skipError{reason: fmt.Sprintf(format, args...)}
}

// IsSkip says whether err is, or wraps, a Skip.
func IsSkip(err error) bool {
	var skip *skipError
	return errors.As(err, &skip)
}

type skipError struct{ reason string }

func (e *skipError) Error() string { return e.reason }

// ErrUsage marks errors of the caller: a selection that matches nothing, or a disruptive check that was not allowed.
var ErrUsage = errors.New("wrong usage")

// Usage returns an ErrUsage whose text is the message alone.
func Usage(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

type usageError struct{ error }

func (e *usageError) Is(target error) bool { return target == ErrUsage }
func (e *usageError) Unwrap() error        { return e.error }

// ErrUnreachable marks errors that kept us from talking to the API server at all.
var ErrUnreachable = errors.New("cannot reach the API server")
