// SPDX-License-Identifier: Apache-2.0

package logthrottle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/logtest"
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
	r.Log = New(logtest.New(func(_ int, line string) { r.lines = append(r.lines, line) }), again)
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

// refusal is an event of a peer.
func refusal(peer, why string) Event {
	return Event{Level: 1, Peer: peer, Message: "Refused", Who: []any{"address", peer}, Err: errors.New(why)}
}

// TestOnce: the same of the same peer is logged once, then with how often it came.
func TestOnce(t *testing.T) {
	r := record()
	for port := 1000; port < 1100; port++ {
		addr := fmt.Sprintf("[fd00::1]:%d", port)
		r.Add(refusal(addr, "token: read from "+addr+" failed"))
	}
	r.want(t, `Refused address="[fd00::1]:1000" err="token: read from [fd00::1]:1000 failed"`)
	r.Add(refusal("[fd00::1]:5", "another reason"))
	r.Add(refusal("[fd00::2]:5", "another reason"))
	r.want(t, `Refused address="[fd00::1]:5" err="another reason"`, `Refused address="[fd00::2]:5" err="another reason"`)
	r.clock = r.clock.Add(again)
	r.Add(refusal("[fd00::1]:7", "another reason"))
	r.Add(refusal("[fd00::1]:7", "token: read from [fd00::1]:7 failed"))
	r.want(t, `Refused address="[fd00::1]:7" err="another reason"`, `Refused address="[fd00::1]:7" repeated="99" err="token: read from [fd00::1]:7 failed"`)
	r.Forget("[fd00::1]:8")
	r.Add(refusal("[fd00::1]:9", "another reason"))
	r.Add(refusal("[fd00::2]:9", "another reason"))
	r.want(t, `Refused address="[fd00::1]:9" err="another reason"`, `Refused address="[fd00::2]:9" err="another reason"`)
	// Values tell events apart, those that name the peer do not.
	for _, reason := range []string{"token", "claims", "token"} {
		r.Add(Event{Peer: "[fd00::3]:1", Message: "Refused", Who: []any{"agent", r.clock.String()}, Why: []any{"reason", reason}})
		r.clock = r.clock.Add(1)
	}
	if len(r.lines) != 2 {
		t.Errorf("two reasons give the lines %q", r.lines)
	}
}

// TestLevels: a problem of this program is an error, what a peer does is not.
func TestLevels(t *testing.T) {
	var levels []int
	l := New(logtest.New(func(level int, _ string) { levels = append(levels, level) }), again)
	l.Add(Event{Level: 3, Peer: "a", Message: "Refused"})
	l.Add(Event{Peer: "a", Message: "Cannot connect"})
	if !slices.Equal(levels, []int{3, 0}) {
		t.Errorf("levels %v", levels)
	}
}

// TestManyPeers: no number of peers or reasons makes it remember more than it may, or
// keeps others from being logged in time.
func TestManyPeers(t *testing.T) {
	r := record()
	for i := range 10 * maxKinds {
		r.Add(refusal(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255), strings.Repeat("x", i)))
	}
	if n := len(r.kinds); n > maxKinds+1 || len(r.peers) > n {
		t.Errorf("%d kinds of %d peers are remembered", n, len(r.peers))
	}
	if n := len(r.lines); n > maxKinds+1 {
		t.Errorf("%d lines", n)
	}
	r.lines, r.clock = nil, r.clock.Add(again)
	r.Add(refusal("192.0.2.1:1", "why"))
	if len(r.kinds) != 1 || len(r.peers) != 1 {
		t.Errorf("%d kinds of %d peers are left", len(r.kinds), len(r.peers))
	}
	r.want(t, fmt.Sprintf(`Did not log more events of known peers events="%d"`, 9*maxKinds-1), `Refused address="192.0.2.1:1" err="why"`)

	r = record()
	for i := range 1000 {
		r.Add(refusal("192.0.2.1:1", "malformed "+strings.Repeat("y", i%150)))
	}
	if n := len(r.lines); n != maxOfPeer+1 {
		t.Errorf("one peer gets %d lines", n)
	}
}
