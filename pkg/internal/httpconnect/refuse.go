// SPDX-License-Identifier: Apache-2.0

package httpconnect

import (
	"fmt"
	"net/http"
	"strings"
	"unicode"
)

// Refusal is the answer to a request that failed. The reason is in its first line,
// which is all that kube-apiserver passes on.
func Refusal(status int, reason, body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, reasonPhrase(status, reason), len(body), body)
}

// Refuse answers a request of any method. If it is CONNECT, the reason is in the status line as well, where clients look for
// it: net/http puts only the standard text there.
func Refuse(w http.ResponseWriter, r *http.Request, status int, reason string) {
	if r.Method == http.MethodConnect {
		if nc, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_, _ = nc.Write(Refusal(status, reason, reason))
			_ = nc.Close()
			return
		}
	}
	http.Error(w, reason, status)
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
