// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
)

// statusOf maps kinds of failures as upstream's server does.
func statusOf(code tunnel.Code) int {
	switch code {
	case tunnel.CodeNoAgent:
		return http.StatusInternalServerError
	case tunnel.CodeTimeout:
		return http.StatusGatewayTimeout
	case tunnel.CodeLimit:
		return http.StatusServiceUnavailable
	case tunnel.CodeDenied:
		return http.StatusForbidden
	}
	return http.StatusBadGateway
}

// dialReason says in one line why a dial failed, beginning with its kind: some have
// the same status, and the text behind it may be that of an upstream agent.
func dialReason(e *tunnel.DialError) string {
	if e.Code == tunnel.CodeOther {
		return e.Message
	}
	return e.Code.String() + ": " + e.Message
}
