// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/apiclient"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// Times of the Lease, as upstream's server has them.
const (
	leaseDuration = 30 * time.Second
	leaseRenew    = 15 * time.Second
)

// A renewal that fails is tried again soon, and each call for it has little time: the
// Lease is valid for one further interval only.
const (
	leaseRetry   = 2 * time.Second
	leaseTimeout = 5 * time.Second
)

// leaseKeeper publishes the server's Lease and removes expired ones.
type leaseKeeper struct {
	leases *apiclient.Leases
	name   string
	id     string
	m      *server.Metrics
	seen   apiclient.Sightings // of the goroutine that renews
	valid  atomic.Int64        // Leases at the last look
	done   chan struct{}
	cancel context.CancelFunc
}

// keepLease publishes the Lease until release.
func keepLease(ctx context.Context, o *Options, c *apiclient.Client, m *server.Metrics) *leaseKeeper {
	labels, _ := apiclient.ParseLabels(o.LeaseLabel)
	k := &leaseKeeper{leases: &apiclient.Leases{Client: c, Namespace: o.LeaseNamespace, Labels: labels, Timeout: leaseTimeout},
		name: "konnectivity-proxy-server-" + o.ServerID, id: o.ServerID, m: m, done: make(chan struct{})}
	ctx, k.cancel = context.WithCancel(ctx)
	k.seen.OnOddClock = apiclient.LogOddClock(klog.FromContext(ctx))
	go k.run(ctx)
	return k
}

func (k *leaseKeeper) run(ctx context.Context) {
	defer close(k.done)
	for {
		next := time.NewTimer(leaseRenew)
		if err := k.leases.Hold(ctx, k.name, k.id, leaseDuration); err == nil {
			k.sweep(ctx)
		} else {
			if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Cannot renew lease", "name", k.name)
			}
			next.Reset(leaseRetry)
		}
		select {
		case <-ctx.Done():
			next.Stop()
			return
		case <-next.C:
		}
	}
}

// sweep deletes Leases that their holders have not renewed for as long as they are valid.
func (k *leaseKeeper) sweep(ctx context.Context) {
	start := time.Now()
	items, _, err := k.leases.List(ctx)
	if code, reason, ok := apiclient.CodeOf(err); ok {
		k.m.LeaseLists.With(strconv.Itoa(code), reason).Inc()
		k.m.LeaseListTime.With(strconv.Itoa(code)).Observe(time.Since(start).Seconds())
	}
	if err != nil {
		return
	}
	now := time.Now()
	k.seen.Set(items, now)
	k.valid.Store(int64(k.seen.Valid(now)))
	for _, l := range k.seen.Expired(now) {
		start := time.Now()
		err := k.leases.Delete(ctx, l.Metadata.Name, l.Metadata.ResourceVersion)
		if err == nil {
			k.m.CulledLeases.Inc()
		}
		if code, reason, ok := apiclient.CodeOf(err); ok {
			k.m.LeaseDeletes.With(strconv.Itoa(code), reason).Inc()
			k.m.LeaseDelTime.With(strconv.Itoa(code)).Observe(time.Since(start).Seconds())
		}
	}
}

// release removes the Lease, so that agents stop looking for this server.
func (k *leaseKeeper) release(ctx context.Context) {
	k.cancel()
	<-k.done
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := k.leases.Delete(ctx, k.name, ""); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot remove lease", "name", k.name)
	}
}
