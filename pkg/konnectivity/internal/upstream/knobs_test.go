// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"testing"
	"testing/synctest"
	"time"
)

// held is a server's session without a stream, which has one connection that holds back the
// window and one that does not.
func held(t *testing.T) (s *Session, slow, other *Conn) {
	s = New(nil, true, Config{})
	slow, other = &Conn{s: s, id: 1}, &Conn{s: s, id: 2}
	s.conns[1], s.conns[2] = slow, other
	slow.held, slow.moved = s.cfg.ConnBuffer, time.Now()
	slow.holdWindowLocked()
	if len(s.hold.conns) != 1 {
		t.Fatalf("%d connections hold back the window, want 1", len(s.hold.conns))
	}
	s.hold.timer.Stop() // the test ticks
	synctest.Wait()
	s.hold.due = 0
	return s, slow, other
}

// TestStandstill checks that the window is held back for a slow receiver that takes something
// between two ticks, and not for one that takes nothing until it has taken something.
func TestStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, slow, _ := held(t)
		tick := func() {
			s.tick()
			s.hold.timer.Stop()
		}
		for range 3 {
			time.Sleep(standstill - time.Millisecond)
			slow.moved = time.Now()
			if tick(); len(s.hold.conns) != 1 {
				t.Fatal("a receiver that takes something counts as stalled")
			}
		}
		time.Sleep(standstill - time.Millisecond)
		if tick(); len(s.hold.conns) != 1 {
			t.Fatal("a receiver counts as stalled too early")
		}
		time.Sleep(time.Millisecond)
		if tick(); len(s.hold.conns) != 0 {
			t.Error("the window is held back for a receiver that has stalled")
		}
		if slow.holdWindowLocked(); len(s.hold.conns) != 0 {
			t.Error("the window is held back once more although the receiver has taken nothing since")
		}
		slow.passedOnLocked(1)
		if slow.holdWindowLocked(); len(s.hold.conns) != 1 {
			t.Error("the window is not held back for a receiver that goes on")
		}
		s.hold.timer.Stop()
		synctest.Wait()
	})
}

// TestTickWalksSlowReceivers checks that a tick, which may come each millisecond under the
// session's lock, uses the slow receivers only, and forgets each one that has stalled.
func TestTickWalksSlowReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, slow, other := held(t)
		s.conns[3] = nil // fails when a tick uses it
		third := &Conn{s: s, id: 4, held: s.cfg.ConnBuffer, moved: time.Now()}
		third.holdWindowLocked()
		other.held, other.moved = s.cfg.ConnBuffer, time.Now()
		other.holdWindowLocked()
		time.Sleep(standstill)
		third.moved = time.Now()
		s.tick()
		s.hold.timer.Stop()
		if third.demand.need != needHold || slow.demand.need != needNone || other.demand.need != needNone || len(s.hold.conns) != 1 {
			t.Errorf("%d receivers hold back the window, want the one that has not stalled", len(s.hold.conns))
		}
		if third.releaseWindowLocked(); len(s.hold.conns) != 0 {
			t.Error("a receiver that keeps up again holds back the window")
		}
	})
}

// TestAsksOnce checks that a connection without an answer makes the next increment come early
// only once, however often it sends, and again after an answer, which ends the hurry.
func TestAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, slow, other := held(t)
		defer func() { s.hold.timer.Stop() }()
		s.hold.setTimer(interval)
		if other.askLocked(); s.hold.wait != intervalFirst {
			t.Fatalf("the next increment comes after %v for a connection that waits for an answer, want %v", s.hold.wait, intervalFirst)
		}
		s.hold.setTimer(time.Hour)
		for range 10 {
			if other.askLocked(); s.hold.wait != time.Hour {
				t.Fatal("a connection that asks twice is counted twice")
			}
		}
		// What it sent before had no answer; what it sends now may have one.
		time.Sleep(askAgain)
		if other.askLocked(); s.hold.wait != intervalFirst || s.hold.asks != 1 {
			t.Errorf("the next increment comes after %v for one that asks again later, and %d wait", s.hold.wait, s.hold.asks)
		}
		if other.cameLocked(1); s.hold.wait != interval {
			t.Errorf("the next increment comes after %v when the answer has come, want %v", s.hold.wait, interval)
		}
		if other.askLocked(); s.hold.wait != intervalFirst {
			t.Errorf("the next increment comes after %v for one that asks after an answer, want %v", s.hold.wait, intervalFirst)
		}
		s.hold.setTimer(time.Hour)
		if slow.askLocked(); s.hold.wait != time.Hour {
			t.Error("a receiver that has plenty hurries the next increment")
		}
	})
}

// TestOthersStillAsk checks that the answer to one connection does not make another one that
// waits for its answer wait longer, and that the interval is long again when all have answers.
func TestOthersStillAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, first := held(t)
		defer func() { s.hold.timer.Stop() }()
		second := &Conn{s: s, id: 3}
		s.conns[3] = second
		s.hold.setTimer(interval)
		first.askLocked()
		second.askLocked()
		for range 3 {
			if first.cameLocked(1); s.hold.wait != intervalFirst {
				t.Fatalf("the next increment comes after %v while one waits for an answer, want %v", s.hold.wait, intervalFirst)
			}
		}
		if second.forgetLocked(); s.hold.wait != interval {
			t.Errorf("the next increment comes after %v when none waits, want %v", s.hold.wait, interval)
		}
		first.askLocked()
		first.held, first.moved = s.cfg.ConnBuffer, time.Now()
		if first.holdWindowLocked(); s.hold.asks != 0 {
			t.Error("a receiver that has become slow still counts as waiting")
		}
	})
}

// TestDrained checks that a receiver that has taken all of a transfer counts as waiting for more,
// and one that has taken a short answer does not.
func TestDrained(t *testing.T) {
	for name, tc := range map[string]struct {
		came int
		wait time.Duration
	}{"transfer": {drainedLeast, intervalFirst}, "answer": {drainedLeast - 1, interval}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _, other := held(t)
				defer func() { s.hold.timer.Stop() }()
				other.cameLocked(tc.came)
				other.gotLocked(tc.came)
				s.hold.setTimer(interval)
				if other.passedOnLocked(tc.came); s.hold.wait != tc.wait {
					t.Errorf("the next increment comes after %v, want %v", s.hold.wait, tc.wait)
				}
			})
		})
	}
}

// TestBusyOthersOpenTheWindow checks that what comes for a connection that keeps up opens the
// window by more than it used up, up to a limit, and that what comes for a slow one does not.
func TestBusyOthersOpenTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, slow, other := held(t)
		if slow.cameLocked(1000); s.hold.due != 0 {
			t.Errorf("%d bytes are due for what came for the slow receiver", s.hold.due)
		}
		if other.cameLocked(1000); s.hold.due <= 1000 {
			t.Errorf("%d bytes are due for 1000 that came, so that nothing is left for the others", s.hold.due)
		}
		if other.cameLocked(10 * dueMost); s.hold.due != dueMost {
			t.Errorf("%d bytes are due, want at most %d", s.hold.due, dueMost)
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
