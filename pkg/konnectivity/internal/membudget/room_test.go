// SPDX-License-Identifier: Apache-2.0

package membudget

import "testing"

// TestTake: windows grow by an eighth of the memory in all. What was refused or given back is free again, and nothing is given while
// more than half of the memory is used.
func TestTake(t *testing.T) {
	used := int64(400)
	l := New(Config{Total: 800, Used: func() int64 { return used }})
	if !l.Take(60) || !l.Take(40) {
		t.Error("an eighth is not given")
	}
	if l.Take(1) {
		t.Error("more than an eighth is given")
	}
	l.Give(40)
	if l.Take(41) || !l.Take(40) {
		t.Error("what was given back is not what is free")
	}
	l.Give(100)
	used = 401
	if l.Take(1) {
		t.Error("given with more than half of the memory used")
	}
	used = 400
	if !l.Take(100) {
		t.Error("an eighth is not given after all was given back")
	}
}

// TestTakeUnlimited: without a limit, everything is given.
func TestTakeUnlimited(t *testing.T) {
	l := New(Config{Used: func() int64 { return 1 << 40 }})
	for range 2 {
		if !l.Take(1 << 30) {
			t.Error("refused without a limit")
		}
	}
	l.Give(1 << 30)
	if l.Join("a", &peer{}).Room(7) != 7 {
		t.Error("tight without a limit")
	}
}

// TestRoom: a queue may hold shortRoom with half of the memory used, half of it with three quarters, and leastRoom with all or more.
// It never gets more than it asks for.
func TestRoom(t *testing.T) {
	var used int64
	a := New(Config{Total: 1 << 20, Used: func() int64 { return used }}).Join("a", &peer{})
	for _, c := range []struct {
		used      int64
		most, min int // of the result
	}{
		{1 << 19, 1 << 20, 1 << 20},
		{1<<19 + 64, shortRoom, shortRoom - 16},
		{3 << 18, shortRoom / 2, shortRoom / 2},
		{1<<20 - 64, leastRoom, leastRoom},
		{1 << 20, leastRoom, leastRoom},
		{1 << 21, leastRoom, leastRoom},
	} {
		used = c.used
		if got := a.Room(1 << 20); got > c.most || got < c.min {
			t.Errorf("with %d used: %d, want %d to %d", used, got, c.min, c.most)
		}
		if got := a.Room(100); got != 100 {
			t.Errorf("with %d used: %d, want the 100 that are asked for", used, got)
		}
	}
	if (*Account)(nil).Room(5) != 5 {
		t.Error("no account limits a queue")
	}
}

// TestNothingReset: OnReset is not called when no connection could be reset.
func TestNothingReset(t *testing.T) {
	l := New(Config{Peer: 10, Used: func() int64 { return 0 }, OnReset: func(string, int, int64) { t.Error("called") }})
	a := l.Join("a", &peer{})
	a.Add(11)
	a.Relieve()
}
