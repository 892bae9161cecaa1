// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// LockName is the Lease in kube-system that one run holds while it changes things.
const LockName = "fairlead-install"

// ErrLockLost is returned if another run took the lock because this one could
// not renew it.
var ErrLockLost = errors.New("lost the lock to another run: run it again, it continues where this one stopped")

// locked calls run while no other process is in locked for the same cluster. It
// cancels run's context if the lock is lost.
func (c *client) locked(ctx context.Context, reporter progress.Reporter, run func(context.Context) error) error {
	host, _ := os.Hostname()
	identity := fmt.Sprintf("%s, process %d, %s", host, os.Getpid(), rand.Text()[:8])
	// Release the lock when run has returned, not when ctx ends.
	lockCtx, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	// state changes from waiting to either running or abandoned, and not again.
	var state atomic.Int32
	done := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Name: LockName, Namespace: metav1.NamespaceSystem}, Client: c.kube.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: c.timing.lockDuration, RenewDeadline: c.timing.lockRenew, RetryPeriod: c.timing.lockRetry, ReleaseOnCancel: true, Name: LockName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) {
				if state.CompareAndSwap(lockWaiting, lockRunning) {
					done <- runBoth(ctx, held, run)
					release()
				}
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(holder string) {
				if holder != identity && holder != "" {
					reporter.Detail("waiting for another run to end (%s)", holder)
				}
			},
		},
	})
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		if state.CompareAndSwap(lockWaiting, lockAbandoned) {
			release()
		}
	})
	defer stop()
	// Discard the elector's log, which would appear between the lines of a
	// command.
	elector.Run(logr.NewContext(lockCtx, logr.Discard()))
	if state.CompareAndSwap(lockWaiting, lockAbandoned) || state.Load() == lockAbandoned {
		return &LockedError{Holder: elector.GetLeader(), cause: context.Cause(ctx)}
	}
	// If the lock was lost, run may not have returned yet.
	return <-done
}

// LockedError is returned if another run held the lock until the time limit. The run that
// waited has changed nothing.
type LockedError struct {
	// Holder says who holds the lock; "" if that is unknown.
	Holder string
	cause  error
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("waiting for Lease %s/%s, which %q holds: %v", metav1.NamespaceSystem, LockName, e.Holder, e.cause)
}

func (e *LockedError) Unwrap() error { return e.cause }

const (
	lockWaiting = iota
	lockRunning
	lockAbandoned
)

// confirmed returns run, which confirm precedes; it may be nil.
func confirmed(confirm, run func(context.Context) error) func(context.Context) error {
	if confirm == nil {
		return run
	}
	return func(ctx context.Context) error {
		if err := confirm(ctx); err != nil {
			return err
		}
		return run(ctx)
	}
}

// runBoth calls run with a context that ends when either of the two ends.
func runBoth(ctx, other context.Context, run func(context.Context) error) error {
	both, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(other, func() { cancel(ErrLockLost) })()
	err := run(both)
	if err != nil && errors.Is(context.Cause(both), ErrLockLost) {
		return errors.Join(ErrLockLost, err)
	}
	return err
}
