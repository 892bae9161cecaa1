// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/http"
	"strings"
	"unicode"

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

// httpError is the answer to a request that failed. The reason is in its first line,
// which is all that kube-apiserver passes on.
func httpError(status int, reason, body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, reasonPhrase(status, reason), len(body), body)
}

// maxReason bounds the reason in a status line, in bytes.
const maxReason = 256

// reasonPhrase makes a text fit for a status line: one line of printable ASCII.
func reasonPhrase(status int, text string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r > ' ' && r <= '~':
			return r
		case unicode.IsSpace(r) || unicode.IsControl(r):
			return ' '
		}
		return '?'
	}, text[:min(len(text), 4*maxReason)])
	clean = strings.Join(strings.Fields(clean), " ")
	if len(clean) > maxReason {
		clean = clean[:maxReason-3] + "..."
	}
	if clean == "" {
		return http.StatusText(status)
	}
	return clean
}
