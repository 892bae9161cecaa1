package check

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// unknownReplicas is the detail of what takes OwnsIdentity to look at.
const unknownReplicas = "not looked at: nothing here tells which replicas are the second scheduler's"

// leaseHolderIsOurs finds another scheduler that leads by our Lease. A holder that is no replica is none yet: a leader whose pod is gone stays the holder
// until the Lease runs out. Only who renews it is alive.
func (s *Scope) leaseHolderIsOurs(ctx context.Context) error {
	if s.OwnsIdentity == nil {
		s.Detail("lease-holder", unknownReplicas)
		return nil
	}
	lease, err := s.leaseIfAny(ctx)
	if err != nil {
		return err
	}
	for suspect := ""; ; {
		holder := holderOf(lease)
		if holder == "" {
			return nil // scheduler-lease says so
		}
		ours, err := s.ours(ctx, holder, time.Now())
		if err != nil {
			return fmt.Errorf("whose %s, the holder of Lease %s, is: %w", holder, s.Lease, err)
		}
		if ours {
			return nil
		}
		if holder == suspect {
			return WithHint(fmt.Errorf("Lease %s is held by %s, which is no replica of this bundle's scheduler", s.Lease, holder),
				"another scheduler uses the same Lease, and while it leads ours does nothing: give one of the two a Lease of its own (scheduler.leaderElection.leaseName)")
		}
		next, err := s.nextRenewal(ctx, lease)
		if err != nil {
			return err
		}
		if next == nil {
			s.Detail("lease-holder", "%s is no replica, and does not renew: a leader that is gone", holder)
			return nil
		}
		suspect, lease = holder, next
	}
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

// nextRenewal waits until the Lease is renewed or has another holder, and returns it; nil if neither happens for as long as it lasts.
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
	switch {
	case err == nil:
		return next, nil
	case !errors.Is(err, errNotRenewed):
		return nil, err
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s, the holder of Lease %s, is no replica of this bundle's scheduler, and whether it renews could not be seen: %w", holderOf(first), s.Lease, ctx.Err())
	}
	return nil, nil
}
