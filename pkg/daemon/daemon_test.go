// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		raw := make(chan os.Signal, 2)
		signals := watch(raw)
		defer signals.Stop()
		if signals.Received() {
			t.Error("a signal was received before one was sent")
		}
		raw <- syscall.SIGTERM
		if !signals.Received() {
			t.Error("the first signal was not received")
		}
		synctest.Wait()
		if closed(signals.Second) {
			t.Error("one signal counted as two")
		}
		raw <- os.Interrupt
		synctest.Wait()
		if !closed(signals.Second) {
			t.Error("the second signal was not received")
		}
	})
}

func TestUntil(t *testing.T) {
	failed := errors.New("failed")
	synctest.Test(t, func(t *testing.T) {
		deadline := make(chan struct{})
		release := make(chan struct{})
		if err := Until(deadline, func() error { return failed }); !errors.Is(err, failed) {
			t.Errorf("got %v, want the result of run", err)
		}
		close(deadline)
		if err := Until(deadline, func() error { <-release; return nil }); !errors.Is(err, ErrForced) {
			t.Errorf("got %v, want ErrForced", err)
		}
		close(release)
	})
}

func TestDrained(t *testing.T) {
	drain := Drain{Settle: 300 * time.Millisecond, Timeout: 5 * time.Second, Interval: 50 * time.Millisecond}
	tests := []struct {
		name     string
		open     func(at time.Duration) int // after the first signal
		secondAt time.Duration
		timeout  time.Duration
		want     time.Duration
	}{
		{name: "idle", open: func(time.Duration) int { return 0 }, timeout: drain.Timeout, want: 300 * time.Millisecond},
		{
			name:    "work ends",
			open:    func(at time.Duration) int { return toInt(at < time.Second) },
			timeout: drain.Timeout,
			want:    1250 * time.Millisecond, // last seen open at 0.95 s
		},
		{
			name:    "work shows up late",
			open:    func(at time.Duration) int { return toInt(at >= 200*time.Millisecond && at < 500*time.Millisecond) },
			timeout: drain.Timeout,
			want:    750 * time.Millisecond,
		},
		{name: "work never ends", open: func(time.Duration) int { return 1 }, timeout: drain.Timeout, want: 5 * time.Second},
		{name: "no patience", open: func(time.Duration) int { return 1 }, want: 0},
		{
			name: "second signal", open: func(time.Duration) int { return 1 },
			secondAt: 700 * time.Millisecond, timeout: drain.Timeout, want: 700 * time.Millisecond,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, second := make(chan struct{}), make(chan struct{})
				var start atomic.Pointer[time.Time]
				d := drain
				d.Timeout = tt.timeout
				d.Open = func() int { return tt.open(time.Since(*start.Load())) }
				drained := Drained(&Signals{First: first, Second: second}, d)
				time.Sleep(time.Minute)
				if closed(drained) {
					t.Fatal("drained without a signal")
				}
				now := time.Now()
				start.Store(&now)
				close(first)
				if tt.secondAt > 0 {
					time.AfterFunc(tt.secondAt, func() { close(second) })
				}
				<-drained
				if got := time.Since(now); got != tt.want {
					t.Errorf("drained after %v, want %v", got, tt.want)
				}
			})
		})
	}
}

func TestDeadlineAndAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := make(chan struct{}), make(chan struct{})
		signals := &Signals{First: first, Second: second}
		slow, after := signals.Deadline(time.Hour), After(first, time.Minute)
		start := time.Now()
		close(first)
		<-after
		if got := time.Since(start); got != time.Minute {
			t.Errorf("After closed after %v, want a minute", got)
		}
		if closed(slow) {
			t.Error("the deadline has passed too early")
		}
		close(second)
		<-slow
		if got := time.Since(start); got != time.Minute {
			t.Errorf("the second signal did not end the deadline: %v", got)
		}
	})
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
