// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Load dials at an even rate, however long each dial takes, and counts what fails.
type Load struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	took []time.Duration
	errs map[string]int
}

// Dials is what a Load counted.
type Dials struct {
	// Made and Failed count dials.
	Made, Failed int
	// P50, P99 and Max are how long dials took, failed ones included.
	P50, P99, Max time.Duration
	// Errors counts failures by their text.
	Errors map[string]int
}

func (d Dials) String() string {
	text := fmt.Sprintf("%d dials, %d failed; p50 %s, p99 %s, max %s", d.Made, d.Failed,
		d.P50.Round(time.Millisecond), d.P99.Round(time.Millisecond), d.Max.Round(time.Millisecond))
	for _, e := range slices.Sorted(maps.Keys(d.Errors)) {
		text += fmt.Sprintf("\n  %d times: %s", d.Errors[e], e)
	}
	return text
}

// dialLimit is when a dial counts as failed: kube-apiserver itself gives up after 30 s.
const dialLimit = 35 * time.Second

// StartLoad calls dial perSecond times a second until Stop.
func StartLoad(ctx context.Context, perSecond int, dial func(context.Context) error) *Load {
	ctx, cancel := context.WithCancel(ctx)
	l := &Load{cancel: cancel, done: make(chan struct{}), errs: map[string]int{}}
	go func() {
		defer close(l.done)
		var wg sync.WaitGroup
		defer wg.Wait()
		ticker := time.NewTicker(time.Second / time.Duration(perSecond))
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			// The dials that are under way when the load stops still count.
			wg.Go(func() { l.dial(context.WithoutCancel(ctx), dial) })
		}
	}()
	return l
}

func (l *Load) dial(ctx context.Context, dial func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	begin := time.Now()
	err := dial(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, time.Since(begin))
	if err != nil {
		l.errs[shorten(err)]++
	}
}

// UntilItWorks repeats a call until it succeeds, as users and controllers do, and counts the attempts that fail. A fault that holds
// a call up does so for as long as kube-apiserver waits.
func UntilItWorks(failed *atomic.Int64, call func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			err := call(ctx)
			if err == nil {
				return nil
			}
			failed.Add(1)
			select {
			case <-ctx.Done():
				return err
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

// Stop ends the load and returns what it counted, once the last dial is over.
func (l *Load) Stop() Dials {
	l.cancel()
	<-l.done
	l.mu.Lock()
	defer l.mu.Unlock()
	d := Dials{Made: len(l.took), Errors: l.errs}
	for _, n := range l.errs {
		d.Failed += n
	}
	if len(l.took) > 0 {
		slices.Sort(l.took)
		d.P50, d.P99, d.Max = l.took[len(l.took)/2], l.took[len(l.took)*99/100], l.took[len(l.took)-1]
	}
	return d
}

func shorten(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	return text[:min(len(text), 300)]
}

// Stream is something long: it runs until ctx ends, calls alive whenever it has
// got what it should, and returns early if it breaks.
type Stream func(ctx context.Context, alive func()) error

// ErrStalled says that a stream got nothing for too long.
var ErrStalled = errors.New("nothing came for too long")

// stallLimit is after how long without anything a stream counts as broken.
const stallLimit = 15 * time.Second

// LongStreams are streams that are reopened when they break.
type LongStreams struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	alive  map[string]int
	opened int
	failed int
	broken []string
}

// StreamCount is what LongStreams counted.
type StreamCount struct {
	// Opened counts streams, Failed those of them that broke before they got
	// anything, and Alive how often any got something.
	Opened, Failed, Alive int
	// Broken says which broke, after how long and how.
	Broken []string
}

func (s StreamCount) String() string {
	text := fmt.Sprintf("%d streams opened, %d of them in vain, %d broken", s.Opened, s.Failed, len(s.Broken))
	if len(s.Broken) > 0 {
		text += "\n  " + strings.Join(s.Broken, "\n  ")
	}
	return text
}

// StartStreams opens each of the streams n times and returns once all are alive.
func StartStreams(ctx context.Context, n int, streams map[string]Stream) (*LongStreams, error) {
	streamsCtx, cancel := context.WithCancel(ctx)
	l := &LongStreams{cancel: cancel, alive: map[string]int{}}
	for kind, stream := range streams {
		for i := range n {
			name := fmt.Sprintf("%s %d", kind, i)
			l.wg.Go(func() { l.keep(streamsCtx, name, stream) })
		}
	}
	err := Wait(ctx, time.Minute, "all streams to be alive", func(context.Context) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if alive := len(l.alive); alive < n*len(streams) {
			return fmt.Errorf("%d of %d are; broken: %v", alive, n*len(streams), l.broken)
		}
		return nil
	})
	if err != nil {
		l.Stop()
	}
	return l, err
}

// keep opens one stream again and again.
func (l *LongStreams) keep(ctx context.Context, name string, stream Stream) {
	for ctx.Err() == nil {
		begin := time.Now()
		l.mu.Lock()
		l.opened++
		before := l.alive[name]
		l.mu.Unlock()
		err := l.watch(ctx, name, stream)
		if ctx.Err() != nil {
			return
		}
		l.mu.Lock()
		if err == nil {
			err = errors.New("it ended")
		}
		if l.alive[name] == before {
			l.failed++
		}
		l.broken = append(l.broken, fmt.Sprintf("%s after %s: %s", name, time.Since(begin).Round(100*time.Millisecond), shorten(err)))
		l.mu.Unlock()
		time.Sleep(200 * time.Millisecond) // not a busy loop while nothing can be opened
	}
}

// watch runs a stream and cancels it when it stalls.
func (l *LongStreams) watch(ctx context.Context, name string, stream Stream) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(2*stallLimit, func() { cancel(ErrStalled) })
	defer timer.Stop()
	err := stream(ctx, func() {
		timer.Reset(stallLimit)
		l.mu.Lock()
		l.alive[name]++
		l.mu.Unlock()
	})
	if errors.Is(context.Cause(ctx), ErrStalled) {
		return ErrStalled
	}
	return err
}

// Stop ends all streams and returns what was counted.
func (l *LongStreams) Stop() StreamCount {
	l.cancel()
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	c := StreamCount{Opened: l.opened, Failed: l.failed, Broken: l.broken}
	for _, n := range l.alive {
		c.Alive += n
	}
	return c
}
