// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

func TestMain(m *testing.M) { os.Exit(daemontest.RunShared(m)) }

// quick is the timing of tests.
func quick() timing {
	t := usual
	t.resyncNotReady, t.retryFirst, t.keepAgain, t.keepPause, t.settle = 2*time.Second, 100*time.Millisecond, 500*time.Millisecond, 100*time.Millisecond, time.Second
	return t
}

// Quick has the operator look often. Registry gets the metrics of its webhook.
func (o *Options) Quick(registry *prometheus.Registry) {
	t := quick()
	o.timing, o.registry = &t, registry
}

// WaitFor bounds how long a look waits for another run.
func (r *BundleReconciler) WaitFor(limit time.Duration) *BundleReconciler {
	r.timing = &timing{resyncReady: usual.resyncReady, resyncNotReady: usual.resyncNotReady, apply: limit}
	return r
}

// WaitFor bounds how long a look waits for another run.
func (r *PoolReconciler) WaitFor(limit time.Duration) *PoolReconciler {
	r.timing = &timing{resyncReady: usual.resyncReady, resyncNotReady: usual.resyncNotReady, apply: limit}
	return r
}
