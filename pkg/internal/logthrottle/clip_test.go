// SPDX-License-Identifier: Apache-2.0

package logthrottle

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestClip: what a peer sends makes no line of the log longer than two clipped texts,
// whether it is in the name or in the reason, and characters stay whole.
func TestClip(t *testing.T) {
	long := strings.Repeat("é", 30_000)
	r := record()
	r.Add(Event{Level: 1, Peer: "10.0.0.1:1", Message: "Refused", Who: []any{"agent", long}, Err: errors.New("short")})
	r.Add(Event{Level: 1, Peer: "10.0.0.1:1", Message: "Refused", Who: []any{"agent", "short"}, Err: errors.New("path " + long)})
	r.Add(Event{Level: 1, Peer: "10.0.0.1:1", Message: "Refused", Why: []any{"path", long}})
	if len(r.lines) != 3 {
		t.Fatalf("logged %d lines, want 3", len(r.lines))
	}
	for _, line := range r.lines {
		if len(line) > 2*512 || !utf8.ValidString(line) {
			t.Errorf("line of %d bytes, valid UTF-8: %v", len(line), utf8.ValidString(line))
		}
	}
	if whole := strings.Repeat("x", 512); Clip(whole) != whole {
		t.Error("a text of 512 bytes was clipped")
	}
}
