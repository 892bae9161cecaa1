// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// Poll asks again and again until the answer is good.
type Poll struct {
	// Timeout bounds the whole wait, and Every is the interval between two questions.
	Timeout, Every time.Duration
	// Progress receives every bad answer.
	Progress progress.Reporter
}

// Until polls ask until it has returned nil for the duration stable without a
// break, or until the timeout; then it returns the last error.
func (p Poll) Until(ctx context.Context, stable time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.Timeout, fmt.Errorf("not within %s", p.Timeout))
	defer cancel()
	var since time.Time
	for {
		err := ask(ctx)
		if err != nil {
			since = time.Time{}
			p.Progress.Detail("%v", err)
		} else if since.IsZero() {
			since = time.Now()
		}
		if err == nil && time.Since(since) >= stable {
			return nil
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = errors.New("was ready for less than a moment")
			}
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(p.Every):
		}
	}
}

// Waiter waits until the kubelet has done its part after a change of a manifest.
type Waiter struct {
	Poll
	Proc Procfs
	// Settle is how long a restarted program must stay ready, as one and the same process.
	Settle time.Duration
	// Healthy calls a health check.
	Healthy func(ctx context.Context, url string) error
}

// Ready waits until the program runs with exactly its flags and its health
// check succeeds. Processes of another manifest do not count and must have
// exited: they may have the same flags, and answer the same health check. A
// process that is replaced while it settles was of a manifest that the kubelet had
// read before: the wait begins again with the next one.
func (w Waiter) Ready(ctx context.Context, p *Program, others []Instance) error {
	var settling []Instance
	return w.Until(ctx, w.Settle, func(ctx context.Context) error {
		running, err := w.started(p, others)
		if err != nil {
			return err
		}
		before := settling
		settling = running
		if before != nil && !slices.Equal(before, running) {
			return fmt.Errorf("the kubelet has just replaced %s (process %d)", p.Name, running[0].PID)
		}
		return w.Healthy(ctx, p.Health)
	})
}

// Gone waits until no process has those flags any more.
func (w Waiter) Gone(ctx context.Context, p *Program) error {
	return w.Until(ctx, 0, func(context.Context) error {
		if found := w.Proc.Find(p, true); len(found) > 0 {
			return fmt.Errorf("%s still runs (process %d)", p.Name, found[0].PID)
		}
		return nil
	})
}

// started returns the instances of the program. It fails if there is none, or while
// one of the others still runs.
func (w Waiter) started(p *Program, others []Instance) ([]Instance, error) {
	for _, i := range w.Proc.Find(p, false) {
		if i.Among(others) {
			return nil, fmt.Errorf("the kubelet has not replaced %s yet (process %d)", p.Name, i.PID)
		}
	}
	running := w.Proc.Find(p, true)
	if len(running) == 0 {
		return nil, fmt.Errorf("the kubelet has not started %s from its manifest yet", p.Name)
	}
	return running, nil
}

// Visible fails if no process of a program is visible, although the program works:
// it would then be impossible to detect that the kubelet has restarted it.
func (f Procfs) Visible(p *Program) error {
	if len(f.Find(p, false)) > 0 {
		return nil
	}
	return fmt.Errorf("%s works, but its process is not visible here, so a restart by the kubelet could not be detected: "+
		"run the command on the node itself, or in a Pod with hostPID: true", p.Name)
}
