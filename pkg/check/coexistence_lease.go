package check

import (
	"context"
	"fmt"
	"time"
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
			return fmt.Errorf("%s, the holder of Lease %s, is no replica of this bundle's scheduler, and whether it renews could not be seen: %w", holder, s.Lease, err)
		}
		if next == nil {
			s.Detail("lease-holder", "%s is no replica, and does not renew: a leader that is gone", holder)
			return nil
		}
		suspect, lease = holder, next
	}
}
