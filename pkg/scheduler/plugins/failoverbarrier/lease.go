// SPDX-License-Identifier: Apache-2.0

package failoverbarrier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// errLease is wrapped by the errors that keep a suspended process from continuing.
var errLease = errors.New("the process has not shown that it leads since it was suspended")

// Lease is the one that decides whether the process leads.
type Lease struct {
	types.NamespacedName
	// Slack is the time between the latest moment at which an elector that cannot renew gives up and the earliest at which
	// another may take over.
	Slack time.Duration
	// Grace is how long an elector that was suspended may take to notice that another leads.
	Grace time.Duration
}

// used is the process's Lease; nil without leader election.
var used atomic.Pointer[Lease]

// UseLease sets the Lease that shows whether this process leads. The command calls it before it creates plugins. Without
// leader election there is no Lease and no other leader, and a suspension has no effect.
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

// tenure is what a process knows about its own time as leader. After a suspended kube-scheduler resumes, it continues for
// up to the renew deadline even if another replica leads. Only then does it give up and exit.
type tenure struct {
	read  leaseReader
	pulse *pulse
	// grace is how long after its end a suspension may go unnoticed by the elector.
	grace time.Duration

	mu sync.Mutex
	// holder is who held the Lease when the process first led.
	holder string
}

func newTenure(lease *Lease, read leaseReader, beats *pulse) *tenure {
	t := &tenure{read: read, pulse: beats}
	if lease != nil {
		t.grace = lease.Grace
	}
	return t
}

// proof returns a function that fails unless the process leads; gaps is the number of suspensions so far. The first time,
// the elector has just confirmed that the process leads. After a suspension the Lease must have the same holder and be
// renewed while the function reads it. The function does not compare clocks, because the clock of a suspended machine may
// be set again when it resumes.
func (t *tenure) proof(gaps int64) func(ctx context.Context) error {
	var before time.Time
	return func(ctx context.Context) error {
		if t.read == nil {
			return nil
		}
		holder, renewed, err := t.read(ctx)
		if err != nil {
			return err
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		switch {
		case t.pulse.look() != gaps:
			return fmt.Errorf("%w: it was suspended while it asked", errLease)
		case t.holder == "":
			return t.first(holder)
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

// first notes who holds the Lease when the process first needs to know. The elector has confirmed that the process leads.
// But a process that had nothing to bind may have been suspended since, and the Lease may name another holder: then the
// elector gives up and the process exits before grace is over.
func (t *tenure) first(holder string) error {
	if awake := t.pulse.awake(); t.pulse.gaps.Load() > 0 && awake < t.grace {
		return fmt.Errorf("%w: it was resumed %s ago, and would exit within %s", errLease, awake.Round(time.Second), t.grace)
	}
	if holder == "" {
		return fmt.Errorf("%w: the Lease has no holder", errLease)
	}
	t.holder = holder
	return nil
}
