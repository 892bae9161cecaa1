// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"testing"
	"testing/synctest"
	"time"
)

// braked is a server's session without a stream, which has one connection that keeps the
// window shut and one that does not.
func braked(t *testing.T) (s *Session, slow, other *Conn) {
	s = New(nil, true, Config{})
	slow, other = &Conn{s: s, id: 1}, &Conn{s: s, id: 2}
	s.conns[1], s.conns[2] = slow, other
	slow.held = s.cfg.ConnLimit
	slow.brakeLocked()
	t.Cleanup(func() { s.brake.timer.Stop() })
	if s.brake.count != 1 {
		t.Fatalf("%d connections keep the window shut, want 1", s.brake.count)
	}
	return s, slow, other
}

// TestStandstill: the window stays shut for a slow receiver that takes something between two
// looks, and not for one that takes nothing.
func TestStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, slow, _ := braked(t)
		defer s.brake.timer.Stop()
		s.brake.timer.Stop() // the test looks
		for range 3 {
			time.Sleep(standstill)
			slow.lag.took = true
			s.lookLocked()
			if s.brake.count != 1 || slow.lag.stands {
				t.Fatal("a receiver that takes something counts as one that stands still")
			}
		}
		s.lookLocked() // too early
		if s.brake.count != 1 {
			t.Fatal("the look came before a standstill was over")
		}
		time.Sleep(standstill)
		s.lookLocked()
		if s.brake.count != 0 || !slow.lag.stands {
			t.Error("the window stays shut for a receiver that stands still")
		}
		if slow.brakeLocked(); s.brake.count != 0 {
			t.Error("the window is shut once more although the receiver has taken nothing since")
		}
	})
}

// TestGrantLeast: while the window is shut, it does not open by a few bytes at a time as
// these fall due.
func TestGrantLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, _ := braked(t)
		s.brake.timer.Stop()
		s.brake.owed, s.brake.due = 1<<20, 1000
		s.repay(false) // without a stream, a grant panics
		if s.brake.owed != 1<<20 || s.brake.due != 1000 {
			t.Errorf("the window opened by %d bytes of 1000 that are due", 1<<20-s.brake.owed)
		}
	})
}

// TestAskAgain: a connection without an answer makes the next trickle come early only now
// and then, however often it sends, but it does so again after a while.
func TestAskAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, other := braked(t)
		defer s.brake.timer.Stop()
		other.askLocked()
		s.brake.setTimer(time.Hour) // nothing came of it
		time.Sleep(500 * time.Millisecond)
		if other.askLocked(); s.brake.wait != time.Hour {
			t.Error("a connection that asks twice within a second is heeded twice")
		}
		time.Sleep(600 * time.Millisecond)
		if other.askLocked(); s.brake.wait != trickleFirst {
			t.Errorf("a connection that asks again after a second waits %v, want %v", s.brake.wait, trickleFirst)
		}
		if s.brake.asks != 1 {
			t.Errorf("%d connections wait for an answer, want 1", s.brake.asks)
		}
	})
}

// TestRound: connections that have waited for as long as a trickle may take are not counted
// any more, and one of them that asks again counts at once.
func TestRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, other := braked(t)
		defer s.brake.timer.Stop()
		other.askLocked()
		s.brake.setTimer(s.mostLocked())
		s.brake.timer.Stop()
		s.tick()
		if s.brake.asks != 0 || other.asksLocked() {
			t.Fatalf("%d connections wait for an answer after the longest trickle, want none", s.brake.asks)
		}
		if other.answeredLocked(); s.brake.asks != 0 {
			t.Fatalf("a late answer makes %d connections wait", s.brake.asks)
		}
		if other.askLocked(); s.brake.asks != 1 || s.brake.wait != trickleFirst {
			t.Errorf("%d connections wait for an answer, the next trickle comes after %v; want 1 and %v", s.brake.asks, s.brake.wait, trickleFirst)
		}
	})
}

// TestBusyOthersOpenTheWindow: what comes for a connection that keeps up brings more of the
// stream with it than it used up, and what comes for a slow one does not.
func TestBusyOthersOpenTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, slow, other := braked(t)
		s.brake.timer.Stop()
		if slow.cameLocked(1000); s.brake.due != 0 {
			t.Errorf("%d bytes are due for what came for the slow receiver", s.brake.due)
		}
		if other.cameLocked(1000); s.brake.due <= 1000 {
			t.Errorf("%d bytes are due for 1000 that came, so that nothing is left for the others", s.brake.due)
		}
	})
}

// TestHoldStale: a close is not held back for data from long ago, although other connections
// keep the stream busy, and it is for data that may still be on its way.
func TestHoldStale(t *testing.T) {
	for name, tc := range map[string]struct {
		quiet time.Duration
		held  bool
	}{"a while ago": {5 * time.Second, true}, "long ago": {holdStale, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(nil, true, Config{})
				c := &Conn{s: s, lastData: time.Now()}
				time.Sleep(tc.quiet)
				s.sentAt = time.Now() // data of others
				if got := c.holdLocked(); got != tc.held {
					t.Errorf("held back: %v, want %v", got, tc.held)
				}
				s.mu.Lock()
				s.closed = true // the timer, if any, finds nothing to do
				s.mu.Unlock()
				time.Sleep(time.Second)
			})
		})
	}
}
