// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// waitLease waits until a replica of the second scheduler is the leader, which
// its readiness does not show. After a hard stop, the Lease of the previous
// holder must expire first.
func (p *plan) waitLease(ctx context.Context, client kubernetes.Interface) error {
	e := p.bundle.Scheduler.LeaderElection
	if !ptr.Deref(e.LeaderElect, true) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("Lease %s/%s has no holder after %v; see %s",
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

// dropStaleLeases deletes the Leases that were held before this start. Their
// holders no longer run, because the supervisor ends its programs with itself.
// After a crash, schedulers and nodes would otherwise wait until the Leases
// expire.
func (p *plan) dropStaleLeases(ctx context.Context, client kubernetes.Interface) error {
	e := p.bundle.Scheduler.LeaderElection
	for _, namespace := range []string{metav1.NamespaceSystem, e.LeaseNamespace, corev1.NamespaceNodeLease} {
		leases, err := client.CoordinationV1().Leases(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("looking for stale leases: %w", err)
		}
		for _, lease := range leases.Items {
			ours := namespace == corev1.NamespaceNodeLease || lease.Name == v1alpha1.KubeSchedulerLease || lease.Name == e.LeaseName
			if !ours || lease.Spec.RenewTime == nil || !lease.Spec.RenewTime.Time.Before(p.began) {
				continue
			}
			// Delete only this version: a new holder may have renewed the Lease
			// meanwhile.
			only := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion}}
			err := client.CoordinationV1().Leases(namespace).Delete(ctx, lease.Name, only)
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return fmt.Errorf("dropping the stale lease %s/%s: %w", namespace, lease.Name, err)
			}
		}
	}
	return nil
}
