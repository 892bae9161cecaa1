// SPDX-License-Identifier: Apache-2.0

// Package politeevents delays a scheduler's events while it binds Pods. For each Pod kube-scheduler sends two writes:
// the binding, which the Pod waits for, and the event "Scheduled", which no component waits for. Both cost the API
// server about the same, so in a burst the events take half of its capacity away from the bindings.
//
// Start at [Install]; [Gate] decides when an event may go out.
package politeevents

import (
	"context"
	"sync"
	"time"
)

const (
	// mostWaiting is the limit of waiting events. Beyond it, each new event lets the oldest one out. Each event has a
	// goroutine.
	mostWaiting = 5000
	// writers is how many events are written at the same time once the gate lets them through.
	writers = 8
)

// Gate holds events back while bindings are under way. Use NewGate; all methods may be called at the same time.
type Gate struct {
	limit time.Duration
	// turns are taken in the order of arrival.
	turns chan struct{}

	mu sync.Mutex
	// changed is closed and replaced when the goroutines that have a turn must check the gate again.
	changed          chan struct{}
	binding, waiting int
	open             bool
}

// NewGate returns a gate that holds an event back for at most a limit; with 0 not at all. When the gate lets events
// out, they still go one after the other.
func NewGate(limit time.Duration) *Gate {
	return &Gate{limit: limit, turns: make(chan struct{}, writers), changed: make(chan struct{})}
}

// Binding says that a binding begins. What it returns is to be called when the binding has ended.
func (g *Gate) Binding() (ended func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.binding++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.binding--; g.binding == 0 {
			g.lookAgain()
		}
	}
}

// Open lets all events through, from now on.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = true
	g.lookAgain()
}

// Flush opens the gate and waits until all events have been written, or until the time is over.
func (g *Gate) Flush(most time.Duration) {
	g.Open()
	const interval = 10 * time.Millisecond
	for end := time.Now().Add(most); g.Waiting() > 0 && time.Now().Before(end); {
		time.Sleep(interval)
	}
}

// Waiting is how many events are at the gate or being written.
func (g *Gate) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting
}

// Pass runs write when no binding is under way, when the limit is over, when too many events wait, or when the gate has
// been opened. It returns the context's error, without having run write, if the context ends before.
func (g *Gate) Pass(ctx context.Context, write func()) error {
	limit := time.NewTimer(g.limit)
	defer limit.Stop()
	g.arrive()
	defer g.leave()
	select {
	case g.turns <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-g.turns }()
	if err := g.wait(ctx, limit.C); err != nil {
		return err
	}
	write()
	return nil
}

// wait blocks an event that has a turn until it may be written.
func (g *Gate) wait(ctx context.Context, over <-chan time.Time) error {
	for {
		changed, may := g.look()
		if may {
			return nil
		}
		select {
		case <-changed:
		case <-over:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *Gate) look() (changed <-chan struct{}, may bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed, g.open || g.binding == 0 || g.waiting > mostWaiting
}

func (g *Gate) arrive() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting++; g.waiting > mostWaiting {
		g.lookAgain()
	}
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting--
}

// lookAgain wakes the goroutines that have a turn; the caller holds mu.
func (g *Gate) lookAgain() {
	close(g.changed)
	g.changed = make(chan struct{})
}
