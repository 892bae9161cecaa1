// SPDX-License-Identifier: Apache-2.0

package state

import (
	"net/http"
	"strings"
	"testing"
)

// TestAgentHeader: an agent survives the header, whatever is in its ID, and no ID can add a header line.
func TestAgentHeader(t *testing.T) {
	for _, a := range []Agent{{"a", ""}, {"a", "node-1"}, {"a b&owner=x", "node"}, {"x\r\nHost: y", "n"}, {"ä/%=?", "=&"}, {strings.Repeat("x", 256), "n"}} {
		text := a.String()
		if strings.ContainsAny(text, "\r\n ") {
			t.Errorf("%q: the header is %q", a, text)
		}
		if got, err := ParseAgent(text); err != nil || got != a {
			t.Errorf("%q came back as %q: %v", a, got, err)
		}
	}
}

// TestBadAgentHeaders: a request whose header does not name one agent is refused, and not given to another one.
func TestBadAgentHeaders(t *testing.T) {
	for _, values := range [][]string{{""}, {"owner=n"}, {"id="}, {"id=a&id=b"}, {"id=a&owner=x&owner=y"}, {"id=%zz"}, {"id=a", "id=a"}, {"a"}} {
		if a, err := AgentOf(http.Header{AgentHeader: values}); err == nil {
			t.Errorf("%q is agent %v", values, a)
		}
	}
	if a, err := AgentOf(http.Header{}); a != nil || err != nil {
		t.Errorf("no header: %v, %v", a, err)
	}
}

// FuzzParseAgent: what is read can be written and read again.
func FuzzParseAgent(f *testing.F) {
	for _, s := range []string{"id=a", "id=a&owner=b", "id=%0d%0a", "id=a;owner=b", "&&id=+"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAgent(text)
		if err != nil {
			return
		}
		if b, err := ParseAgent(a.String()); err != nil || b != a {
			t.Errorf("%q is %q, and then %q: %v", text, a, b, err)
		}
	})
}
