// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"time"
)

// ErrForced says that something did not end in time and was left behind.
var ErrForced = errors.New("did not stop in time")

// Until runs run and returns its result, or ErrForced once deadline is closed and run is still going: the caller is
// expected to end the process then.
func Until(deadline <-chan struct{}, run func() error) error {
	result := make(chan error, 1)
	go func() { result <- run() }()
	select {
	case err := <-result:
		return err
	case <-deadline:
	}
	select {
	case err := <-result: // both at the same time
		return err
	default:
		return ErrForced
	}
}

// After returns a channel that is closed delay after event is.
func After(event <-chan struct{}, delay time.Duration) <-chan struct{} {
	return Drained(&Signals{First: event}, Drain{Open: always, Timeout: delay, Interval: delay})
}

// Deadline returns a channel that is closed delay after the first signal, or with the second one.
func (s *Signals) Deadline(delay time.Duration) <-chan struct{} {
	return Drained(s, Drain{Open: always, Timeout: delay, Interval: delay})
}

func always() int { return 1 }

// Drain describes how to wait for open work.
type Drain struct {
	// Open returns how many pieces of work are open.
	Open func() int
	// Settle is for how long none must be open before the drain is over; work that was accepted just before
	// the signal has that time to show up.
	Settle time.Duration
	// Timeout ends the drain even if work is open. Zero or less: at once.
	Timeout time.Duration
	// Interval between two looks at Open; 50 ms if it is zero or less.
	Interval time.Duration
}

const defaultInterval = 50 * time.Millisecond

// Drained returns a channel that is closed once signals.First is closed and then either nothing was open for Settle,
// or Timeout has passed, or signals.Second is closed.
func Drained(signals *Signals, drain Drain) <-chan struct{} {
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		<-signals.First
		drain.wait(signals.Second)
	}()
	return drained
}

func (d Drain) wait(abort <-chan struct{}) {
	timeout := time.NewTimer(d.Timeout)
	defer timeout.Stop()
	if d.Interval <= 0 {
		d.Interval = defaultInterval
	}
	ticker := time.NewTicker(d.Interval)
	defer ticker.Stop()
	quiet := time.Now()
	for {
		if d.Open() > 0 {
			quiet = time.Now()
		} else if time.Since(quiet) >= d.Settle {
			return
		}
		select {
		case <-abort:
			return
		case <-timeout.C:
			return
		case <-ticker.C:
		}
	}
}
