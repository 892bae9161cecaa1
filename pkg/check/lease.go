// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func (s *Scope) getLease(ctx context.Context, name types.NamespacedName) (*coordinationv1.Lease, error) {
	lease, err := s.Client.CoordinationV1().Leases(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("Lease %s: %w", name, err)
	}
	return lease, nil
}

func holderOf(lease *coordinationv1.Lease) string { return ptr.Deref(lease.Spec.HolderIdentity, "") }

func leaseDuration(lease *coordinationv1.Lease) time.Duration {
	return time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 15)) * time.Second
}

// schedulerLease proves that one replica leads and that our scheduler does not take the default scheduler's Lease. All health endpoints of the
// scheduler return 200 even if the Role for its Lease is missing, so only the Lease itself shows this.
func schedulerLease(ctx context.Context, s *Scope) error {
	first, err := s.heldLease(ctx)
	if err != nil {
		return err
	}
	holder := holderOf(first)
	if before := s.lease.get(ctx); before != nil && holderOf(before) == holder {
		first = before
	}
	s.Detail("holder", "%s", holder)
	if err := s.watchRenewal(ctx, first); err != nil {
		return err
	}
	return s.stockLeaseIsNotOurs(ctx, holder)
}

// earlyLease is the second scheduler's Lease at the start of the run. Holders renew every 2 s, and the time that earlier checks took counts
// toward that wait.
type earlyLease struct {
	done  chan struct{}
	lease *coordinationv1.Lease
}

// readLease begins to read the Lease if one of the checks wants it; else it returns nil.
func readLease(ctx context.Context, env *Env, checks []Check) *earlyLease {
	if !slices.ContainsFunc(checks, func(c Check) bool { return c.watchesLease }) {
		return nil
	}
	e := &earlyLease{done: make(chan struct{})}
	go func() {
		defer close(e.done)
		// The check reads the Lease again and reports what is wrong.
		e.lease, _ = newScope(env, "lease").getLease(ctx, env.Lease)
	}()
	return e
}

// get returns the Lease as the run began, or nil where it could not be read.
func (e *earlyLease) get(ctx context.Context) *coordinationv1.Lease {
	if e == nil {
		return nil
	}
	select {
	case <-e.done:
		return e.lease
	case <-ctx.Done():
		return nil
	}
}

// heldLease returns the second scheduler's Lease once it has a holder.
func (s *Scope) heldLease(ctx context.Context) (*coordinationv1.Lease, error) {
	lease, err := s.getLease(ctx, s.Lease)
	if apierrors.IsNotFound(err) {
		return nil, WithHint(err, "no replica of the second scheduler has ever led: check that it runs, that its configuration names this Lease, and that it may create Leases in %s", s.Lease.Namespace)
	}
	if err != nil {
		return nil, err
	}
	if holderOf(lease) == "" {
		return nil, fmt.Errorf("Lease %s has no holder: no replica of the second scheduler leads", s.Lease)
	}
	return lease, nil
}

// watchRenewal waits until the holder renews: a recent renewTime alone may be from a holder that has died since.
func (s *Scope) watchRenewal(ctx context.Context, first *coordinationv1.Lease) error {
	next, err := s.nextRenewal(ctx, first)
	switch holder := holderOf(first); {
	case err != nil:
		return fmt.Errorf("waiting for the holder of Lease %s, %s, to renew it: %w", s.Lease, holder, err)
	case next == nil:
		return WithHint(fmt.Errorf("Lease %s has no holder: %s, the last one, has not renewed it within %s", s.Lease, holder, leaseDuration(first)),
			"it has exited, cannot reach the API server, or may not update Leases in %s; kube-scheduler's health endpoints do not report this", s.Lease.Namespace)
	case holderOf(next) != holder:
		return fmt.Errorf("Lease %s went from %s to %s during the check: two replicas compete for it, or the leader exited", s.Lease, holder, holderOf(next))
	}
	return nil
}

// leaseIfAny is a Lease without a holder where there is none.
func (s *Scope) leaseIfAny(ctx context.Context) (*coordinationv1.Lease, error) {
	lease, err := s.getLease(ctx, s.Lease)
	if apierrors.IsNotFound(err) {
		return &coordinationv1.Lease{}, nil
	}
	return lease, err
}

// errNotRenewed says that a Lease is as it was.
var errNotRenewed = errors.New("not renewed")

// nextRenewal waits until the Lease is renewed or has another holder, and returns it; nil if neither happens for as long as it lasts. Renewals are
// counted with this machine's clock only to bound the wait, so clock skew against the control plane does no harm.
func (s *Scope) nextRenewal(ctx context.Context, first *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	bounded, cancel := context.WithTimeout(ctx, leaseDuration(first))
	defer cancel()
	renewed := func(l *coordinationv1.Lease) time.Time { return ptr.Deref(l.Spec.RenewTime, metav1.MicroTime{}).Time }
	var next *coordinationv1.Lease
	err := waitFor(bounded, 200*time.Millisecond, func(ctx context.Context) error {
		now, err := s.leaseIfAny(ctx)
		if err != nil {
			return err
		}
		if holderOf(now) == holderOf(first) && renewed(now).Equal(renewed(first)) {
			return errNotRenewed
		}
		next = now
		return nil
	})
	if errors.Is(err, errNotRenewed) {
		return nil, ctx.Err() // it is the check's own time that is over, or the Lease's
	}
	return next, err
}

func (s *Scope) stockLeaseIsNotOurs(ctx context.Context, ours string) error {
	stock, err := s.getLease(ctx, s.StockLease)
	if apierrors.IsNotFound(err) {
		s.Detail("stock-holder", "none: the default scheduler runs without leader election")
		return nil
	}
	if err != nil {
		return err
	}
	holder := holderOf(stock)
	s.Detail("stock-holder", "%s", holder)
	owned := holder == ours
	if !owned && s.OwnsIdentity != nil {
		if owned, err = s.OwnsIdentity(ctx, holder); err != nil {
			return fmt.Errorf("find the owner of identity %s: %w", holder, err)
		}
	}
	if owned {
		return WithHint(fmt.Errorf("the second scheduler (%s) holds the default scheduler's Lease %s", holder, s.StockLease),
			"set leaderElection.resourceName in its configuration, and turn off its feature gate CoordinatedLeaderElection")
	}
	return nil
}
