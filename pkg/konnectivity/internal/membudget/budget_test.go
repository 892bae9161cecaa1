// SPDX-License-Identifier: Apache-2.0

package membudget

import (
	"slices"
	"testing"
	"time"
)

// peer is a Member with named connections.
type peer struct {
	account *Account
	holds   map[string]Holding
	reset   []string
	used    *int64
}

func (p *peer) add(name string, bytes int, age time.Duration) {
	h := Holding{Bytes: bytes, Since: time.Now().Add(-age)}
	h.Reset = func() {
		p.reset = append(p.reset, name)
		delete(p.holds, name)
		p.account.Add(-bytes)
		*p.used -= int64(bytes)
	}
	p.holds[name] = h
	p.account.Add(bytes)
	*p.used += int64(bytes)
	p.account.Relieve()
}

func (p *peer) Holdings() (all []Holding) {
	for _, h := range p.holds {
		all = append(all, h)
	}
	return all
}

func join(l *Budget, used *int64, name string) *peer {
	p := &peer{holds: map[string]Holding{}, used: used}
	p.account = l.Join(name, p)
	return p
}

// TestPeerBound checks that stalled connections are reset, but not a large connection that
// makes progress, nor any connection of another peer.
func TestPeerBound(t *testing.T) {
	var used int64
	var told []string
	l := New(Config{Peer: 1000, Used: func() int64 { return used }, OnReset: func(p string, n int, _ int64) {
		told = append(told, p)
		if n != 2 {
			t.Errorf("%d connections were reset at once", n)
		}
	}})
	a, b := join(l, &used, "a"), join(l, &used, "b")
	b.add("other", 900, time.Hour)
	a.add("bulk", 700, 0)
	a.add("stalled", 100, time.Minute)
	a.add("stalled for long", 100, time.Hour)
	if len(a.reset) > 0 {
		t.Fatalf("%v reset within the bound", a.reset)
	}
	a.add("late", 150, time.Second)
	if want := []string{"stalled for long", "stalled"}; !slices.Equal(a.reset, want) || len(b.reset) > 0 {
		t.Errorf("reset %v of a and %v of b, want %v of a", a.reset, b.reset, want)
	}
	if !slices.Equal(told, []string{"a"}) {
		t.Errorf("OnReset got %q, want a once", told)
	}
}

// TestTotalBound checks that the worst connections of all peers are reset, and that queues
// are asked to become short before.
func TestTotalBound(t *testing.T) {
	var used int64
	l := New(Config{Total: 1000, Used: func() int64 { return used }})
	a, b := join(l, &used, "a"), join(l, &used, "b")
	b.add("stalled", 500, time.Hour)
	if a.account.Room(1<<20) < 1<<20 {
		t.Error("tight at half of the bound")
	}
	a.add("moves", 500, 0)
	if a.account.Room(1<<20) == 1<<20 {
		t.Error("not tight at the bound")
	}
	a.add("moves, too", 10, 0) // more than half of 1000 is held
	if len(a.reset) > 0 || !slices.Equal(b.reset, []string{"stalled"}) {
		t.Errorf("reset %v and %v", a.reset, b.reset)
	}
}

// TestSlowReceiversKeepHalf checks that slow receivers keep half of the total bound, however far the queues are above it:
// the rest is on its way to receivers that read, and shrinks by itself.
func TestSlowReceiversKeepHalf(t *testing.T) {
	used := int64(0)
	l := New(Config{Total: 1000, Used: func() int64 { return used }})
	a := join(l, &used, "a")
	for _, name := range []string{"1", "2", "3", "4", "5", "6"} {
		a.add(name, 100, time.Hour)
	}
	used += 1500 // on its way
	a.account.Relieve()
	if held := a.account.Held(); held != 500 || len(a.reset) != 1 {
		t.Errorf("slow receivers keep %d bytes after %d resets, want 500 and 1", held, len(a.reset))
	}
	a.account.Relieve() // nothing is to be had
	if len(a.reset) != 1 {
		t.Errorf("%d connections were reset, want only 1", len(a.reset))
	}
}

// TestNothingToReset checks that a search that found nothing is not repeated at once,
// because it visits all connections.
func TestNothingToReset(t *testing.T) {
	used, looks := int64(5000), 0
	l := New(Config{Total: 1000, Used: func() int64 { return used }})
	m := &looker{looks: &looks}
	a := l.Join("a", m)
	a.Add(900)
	for range 1000 {
		a.Relieve()
	}
	if looks == 0 || looks > 100 {
		t.Errorf("looked %d times", looks)
	}
}

type looker struct{ looks *int }

func (m *looker) Holdings() []Holding { *m.looks++; return nil }

// TestAccounts checks that the links of one peer share an account, which is deleted with
// the last link.
func TestAccounts(t *testing.T) {
	l := New(Config{})
	m, n := &peer{}, &peer{}
	a, b := l.Join("a", m), l.Join("a", n)
	if a != b {
		t.Error("two accounts for one peer")
	}
	a.Leave(m)
	if l.Join("a", m) != a {
		t.Error("the account went with one of two links")
	}
	a.Leave(m)
	a.Leave(n)
	if len(l.accounts) != 0 {
		t.Error("the account stays")
	}
	var none *Account
	none.Add(5)
	none.Relieve()
	none.Leave(m)
	if none.Room(1) != 1 || (*Budget)(nil).Join("a", m) != nil {
		t.Error("no budget counts")
	}
}

// TestLargestOfEqualAge checks that, of connections that have stalled for the same time,
// the one that holds most is reset first, so that few are reset.
func TestLargestOfEqualAge(t *testing.T) {
	now := time.Now()
	var reset []int
	hold := func(bytes int) Holding {
		return Holding{Bytes: bytes, Since: now.Add(-time.Minute), Reset: func() { reset = append(reset, bytes) }}
	}
	for _, order := range [][]int{{100, 200, 700}, {700, 200, 100}, {200, 700, 100}} {
		reset = nil
		var m holdings
		for _, bytes := range order {
			m = append(m, hold(bytes))
		}
		if !New(Config{}).reset(now, "", []Member{m}, 300) || !slices.Equal(reset, []int{700}) {
			t.Errorf("of %v reset %v, want the one with 700 bytes", order, reset)
		}
	}
}

type holdings []Holding

func (h holdings) Holdings() []Holding { return h }
