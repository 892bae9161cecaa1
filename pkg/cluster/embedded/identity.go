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

// ownsIdentity says whether an identity is that of a replica of the second
// scheduler. As a Lease's holder that is the host's name, which all programs
// share, and a random number that no replica tells; but a replica tells whether it
// leads. In an event it is the host's name alone.
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

// leader is the replica that says of itself that it leads, "" if none does. One
// that does not answer counts only if no other leads, and keeps nobody waiting.
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

// leaseHolder is who holds the second scheduler's Lease.
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
