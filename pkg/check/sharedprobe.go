// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// sharedProbe is the pod of those checks that only talk to one. It is created when the run begins, so that it runs by the time that the first
// of them needs it, and deleted with the last of them.
type sharedProbe struct {
	scope *Scope
	// users are the checks that have not begun yet.
	users int
	stop  context.CancelFunc
	done  chan struct{}
	pod   *corev1.Pod
	err   error
	// waits is why the pod does not run yet.
	waits atomic.Pointer[error]
}

// probeLimit bounds how long the pod may take; each check that waits for it has its own limit besides.
const probeLimit = 90 * time.Second

// startProbe begins to create the pod if any of the checks talks to it; else it returns nil.
func startProbe(ctx context.Context, env *Env, checks []Check, override time.Duration) *sharedProbe {
	users := 0
	for _, c := range checks {
		if c.usesProbePod {
			users++
		}
	}
	if users == 0 || env.SwitchedOff["tunnel"] != "" {
		return nil
	}
	p := &sharedProbe{scope: newScope(env, "probe"), users: users, done: make(chan struct{})}
	ctx, p.stop = context.WithTimeout(ctx, max(probeLimit, override))
	go func() {
		defer close(p.done)
		p.pod, p.err = p.scope.ownProbePod(ctx, func(why error) { p.waits.Store(&why) })
	}()
	return p
}

// get waits for the pod.
func (p *sharedProbe) get(ctx context.Context) (*corev1.Pod, error) {
	select {
	case <-p.done:
		return p.pod, p.err
	case <-ctx.Done():
		if why := p.waits.Load(); why != nil {
			return nil, *why
		}
		return nil, errors.New("the probe pod is not created yet")
	}
}

// release is called as a check begins. When the last check begins, the pod is deleted as part of that check, which then reports a failure to
// delete it.
func (p *sharedProbe) release(last *Scope, limit time.Duration) {
	if p.users--; p.users == 0 {
		last.Defer("delete the probe pod", func(ctx context.Context) error { return p.close(ctx, limit) })
	}
}

// close deletes the pod, also one that is still to be made.
func (p *sharedProbe) close(ctx context.Context, limit time.Duration) error {
	p.users = 0
	p.stop()
	<-p.done
	return p.scope.cleanup(ctx, limit)
}
