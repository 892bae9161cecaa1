package embedded

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// waitLease waits until a replica of the second scheduler leads: its readiness
// does not tell. After a hard stop the lease of the dead one has to run out first.
func (p *plan) waitLease(ctx context.Context, client kubernetes.Interface) error {
	e := p.bundle.Scheduler.LeaderElection
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("nobody holds Lease %s/%s after %v; see %s",
		e.LeaseNamespace, e.LeaseName, startLimit, p.Log(schedulerName(0))))
	defer cancel()
	return poll(ctx, 100*time.Millisecond, func() (bool, error) {
		lease, err := client.CoordinationV1().Leases(e.LeaseNamespace).Get(ctx, e.LeaseName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("waiting for the second scheduler's leader: %w", err)
		}
		duration := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
		held := ptr.Deref(lease.Spec.HolderIdentity, "") != "" && lease.Spec.RenewTime != nil
		return held && time.Since(lease.Spec.RenewTime.Time) < duration, nil
	})
}
