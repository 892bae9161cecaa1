// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"time"
)

// unknownReplicas is the detail of checks that need OwnsIdentity.
const unknownReplicas = "not checked: the replicas of the second scheduler are unknown"

// leaseHolderIsOurs finds another scheduler that leads with our Lease. A holder that is not one of our replicas is not yet proof of one: a leader
// whose pod is gone stays the holder until the Lease expires. Only a holder that renews the Lease is alive.
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
			return fmt.Errorf("find the owner of %s, the holder of Lease %s: %w", holder, s.Lease, err)
		}
		if ours {
			return nil
		}
		if holder == suspect {
			return WithHint(fmt.Errorf("Lease %s is held by %s, which is not a replica of this bundle's scheduler", s.Lease, holder),
				"another scheduler uses the same Lease, and ours is inactive while it leads: give one of them another Lease (scheduler.leaderElection.leaseName)")
		}
		next, err := s.nextRenewal(ctx, lease)
		if err != nil {
			return fmt.Errorf("%s, the holder of Lease %s, is not a replica of this bundle's scheduler, and whether it renews the Lease is unknown: %w", holder, s.Lease, err)
		}
		if next == nil {
			s.Detail("lease-holder", "%s is not a replica and does not renew the Lease: a leader that no longer exists", holder)
			return nil
		}
		suspect, lease = holder, next
	}
}
