// SPDX-License-Identifier: Apache-2.0

package logthrottle

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const again = time.Minute

// recorded is a log with a clock of its own, and what it wrote.
type recorded struct {
	*Log
	lines []string
	clock time.Time
}

func record() *recorded {
	r := &recorded{clock: time.Now()}
	r.Log = New(func(_ int, format string, args ...any) { r.lines = append(r.lines, fmt.Sprintf(format, args...)) }, again)
	r.now = func() time.Time { return r.clock }
	return r
}

func (r *recorded) want(t *testing.T, lines ...string) {
	t.Helper()
	if got, want := strings.Join(r.lines, "\n"), strings.Join(lines, "\n"); got != want {
		t.Errorf("logged:\n%s\nwant:\n%s", got, want)
	}
	r.lines = nil
}

// TestOnce: the same of the same peer is logged once, then with how often it came.
func TestOnce(t *testing.T) {
	r := record()
	for port := 1000; port < 1100; port++ {
		addr := fmt.Sprintf("[fd00::1]:%d", port)
		r.Addf(1, addr, "agent at "+addr, "token: read from %s failed", addr)
	}
	r.want(t, "agent at [fd00::1]:1000: token: read from [fd00::1]:1000 failed")
	r.Add(1, "[fd00::1]:5", "agent", "another reason")
	r.Add(1, "[fd00::2]:5", "agent", "another reason")
	r.want(t, "agent: another reason", "agent: another reason")
	r.clock = r.clock.Add(again)
	r.Add(1, "[fd00::1]:7", "agent", "another reason")
	r.Add(1, "[fd00::1]:7", "agent", "token: read from [fd00::1]:7 failed")
	r.want(t, "agent: another reason", "agent: token: read from [fd00::1]:7 failed (and 99 times more since it was last logged)")
	r.Forget("[fd00::1]:8")
	r.Add(1, "[fd00::1]:9", "agent", "another reason")
	r.Add(1, "[fd00::2]:9", "agent", "another reason")
	r.want(t, "agent: another reason", "agent: another reason")
}

// TestManyPeers: no number of peers or reasons makes it remember more than it may, or
// keeps others from being logged in time.
func TestManyPeers(t *testing.T) {
	r := record()
	for i := range 10 * maxKinds {
		r.Add(1, fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255), "client", strings.Repeat("x", i))
	}
	if n := len(r.kinds); n > maxKinds+1 || len(r.peers) > n {
		t.Errorf("%d kinds of %d peers are remembered", n, len(r.peers))
	}
	if n := len(r.lines); n > maxKinds+1 {
		t.Errorf("%d lines", n)
	}
	r.lines, r.clock = nil, r.clock.Add(again)
	r.Add(1, "192.0.2.1:1", "client", "why")
	if len(r.kinds) != 1 || len(r.peers) != 1 {
		t.Errorf("%d kinds of %d peers are left", len(r.kinds), len(r.peers))
	}
	r.want(t, fmt.Sprintf("%d more events of peers named before were not logged", 9*maxKinds-1), "client: why")

	r = record()
	for i := range 1000 {
		r.Add(1, "192.0.2.1:1", "client", "malformed "+strings.Repeat("y", i%150))
	}
	if n := len(r.lines); n != maxOfPeer+1 {
		t.Errorf("one peer gets %d lines", n)
	}
}
