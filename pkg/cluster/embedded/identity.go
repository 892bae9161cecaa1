// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// ownsIdentity reports whether an identity is that of a replica of the second
// scheduler. The identity of a Lease's holder consists of the host name, which all
// programs share, and a random number that no replica exposes. A replica does
// expose whether it is the leader. The identity in an event is the host name
// alone.
func (p *parts) ownsIdentity(ctx context.Context, identity string) (bool, error) {
	host, err := os.Hostname()
	if err != nil {
		return false, err
	}
	if identity == host {
		return true, nil
	}
	if !strings.HasPrefix(identity, host+"_") {
		return false, nil
	}
	leader, err := p.leader(ctx)
	if err != nil || leader == "" {
		return false, err
	}
	holder, err := p.leaseHolder(ctx)
	return holder == identity, err
}

// leader returns the replica that reports itself as the leader, or "" if none
// does. An error from a replica matters only if no other replica is the leader.
// The method asks all replicas at once, so a slow one delays it only in that case.
func (p *parts) leader(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		leader string
		err    error
	}
	names := p.schedulers()
	answers := make(chan answer, len(names))
	for _, name := range names {
		go func() {
			leads, err := p.leads(ctx, name)
			switch {
			case err != nil:
				answers <- answer{"", fmt.Errorf("asking %s whether it leads: %w", name, err)}
			case leads:
				answers <- answer{name, nil}
			default:
				answers <- answer{}
			}
		}()
	}
	var silent error
	for range names {
		a := <-answers
		if a.leader != "" {
			return a.leader, nil
		}
		silent = errors.Join(silent, a.err)
	}
	return "", silent
}

// leaseHolder returns the holder of the second scheduler's Lease.
func (p *parts) leaseHolder(ctx context.Context) (string, error) {
	client, err := kubernetes.NewForConfig(p.config)
	if err != nil {
		return "", err
	}
	e := p.plan.bundle.Scheduler.LeaderElection
	lease, err := client.CoordinationV1().Leases(e.LeaseNamespace).Get(ctx, e.LeaseName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return ptr.Deref(lease.Spec.HolderIdentity, ""), nil
}
