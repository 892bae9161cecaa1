// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
)

// tokenError is the reason why a token is refused. The peer is not authenticated, so it
// gets only the kind. The log has the details, such as the expected account or the API
// server's address.
type tokenError struct {
	kind string
	err  error
}

func (e *tokenError) Error() string { return e.kind }
func (e *tokenError) Unwrap() error { return e.err }

// detail returns the text for the log.
func (e *tokenError) detail() string {
	if e.err.Error() == e.kind {
		return e.kind
	}
	return e.kind + ": " + e.err.Error()
}

func (s *Server) tokenError(err error) error {
	var public interface{ Public() string }
	switch {
	case errors.As(err, &public):
		return &tokenError{public.Public(), err}
	case errors.Is(err, context.DeadlineExceeded):
		return &tokenError{fmt.Sprintf("token review timed out after %v", s.admission()), err}
	}
	return &tokenError{"token is not accepted; the server's log has the reason", err}
}

// detailed returns the text of an error for the log.
func detailed(err error) string {
	var e *tokenError
	if errors.As(err, &e) {
		return e.detail()
	}
	return err.Error()
}
