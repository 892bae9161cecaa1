package failoverbarrier

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// errLease is wrapped by what keeps a process that was suspended from going on.
var errLease = errors.New("the process was suspended and has not shown since that it still leads")

// Lease is the one that decides whether the process leads.
type Lease struct {
	types.NamespacedName
	// Slack is what lies between the last moment at which an elector that cannot renew gives up and the first at which
	// another may take over.
	Slack time.Duration
}

// used is the process's Lease; nil without leader election.
var used atomic.Pointer[Lease]

// UseLease says which Lease to ask. The command calls it before plugins are made; without leader election there is
// none, nobody else leads, and a suspension means nothing.
func UseLease(lease Lease) { used.Store(&lease) }

// leaseReader says who holds the Lease, and when it was renewed.
type leaseReader func(ctx context.Context) (holder string, renewed time.Time, err error)

// readerOf reads the process's Lease.
func readerOf(lease *Lease, client kubernetes.Interface) leaseReader {
	if lease == nil {
		return nil
	}
	name := lease.NamespacedName
	return func(ctx context.Context) (string, time.Time, error) {
		lease, err := client.CoordinationV1().Leases(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		if err != nil {
			return "", time.Time{}, fmt.Errorf("read the Lease %s: %w", name, err)
		}
		return ptr.Deref(lease.Spec.HolderIdentity, ""), ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time, nil
	}
}

// tenure is what a process knows of its own time as leader. kube-scheduler goes on for up to the deadline of a renewal
// after it has been resumed, even if another leads: only then it gives up and exits.
type tenure struct {
	read leaseReader
	// holder is who held the Lease when the process first led.
	holder string
}

// proof returns a question that fails unless the process leads. The first time the elector has just said so. After a
// suspension the Lease must be in the same hands and be renewed while it is asked for: clocks are not compared, since a
// suspended machine's may be set anew.
func (t *tenure) proof() func(ctx context.Context) error {
	var before time.Time
	return func(ctx context.Context) error {
		if t.read == nil {
			return nil
		}
		holder, renewed, err := t.read(ctx)
		switch {
		case err != nil:
			return err
		case t.holder == "" && holder != "":
			t.holder = holder
			return nil
		case holder != t.holder:
			before = time.Time{}
			return fmt.Errorf("%w: %q holds the Lease, not %q", errLease, holder, t.holder)
		case before.IsZero() || renewed.Equal(before):
			before = renewed
			return fmt.Errorf("%w: the Lease was last renewed at %s", errLease, renewed.Format(time.RFC3339))
		}
		return nil
	}
}
