// SPDX-License-Identifier: Apache-2.0

// Package daemon ends long-running programs the way kubelets and init systems expect: a first SIGTERM or SIGINT asks,
// a second one insists, and whatever happens the process is gone within a bound that is known beforehand. Notify turns
// signals into channels, Until runs something no longer than a deadline allows, Drained waits for open work to finish.
package daemon

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Signals are the requests to stop that the process has got.
type Signals struct {
	// First is closed by the first SIGTERM or SIGINT: finish what is under way, take nothing new.
	First <-chan struct{}
	// Second is closed by the second one: stop at once.
	Second <-chan struct{}

	raw  chan os.Signal
	done chan struct{}
}

// Notify starts to listen. Others may listen too: every listener gets every signal. Call Stop when done.
func Notify() *Signals {
	raw := make(chan os.Signal, 2)
	signal.Notify(raw, os.Interrupt, syscall.SIGTERM)
	return watch(raw)
}

// Received says whether a first signal has come. Signals reach their listeners one after the other, so Received waits
// 100 ms for a signal that another listener may have received already.
func (s *Signals) Received() bool {
	select {
	case <-s.First:
		return true
	case <-time.After(100 * time.Millisecond):
		return false
	}
}

// Stop ends listening. Signals have their default effect again unless another listener remains. Call it once.
func (s *Signals) Stop() {
	signal.Stop(s.raw)
	close(s.done)
}

func watch(raw chan os.Signal) *Signals {
	first, second, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		for _, stage := range []chan struct{}{first, second} {
			select {
			case <-raw:
				close(stage)
			case <-done:
				return
			}
		}
	}()
	return &Signals{First: first, Second: second, raw: raw, done: done}
}
