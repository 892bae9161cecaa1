// SPDX-License-Identifier: Apache-2.0

package failoverbarrier

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// barrierOpen is 1 while a profile's pods are let through and 0 while they are kept back; a standby has none.
var barrierOpen = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Subsystem: "fairlead", Name: "failover_barrier_open", StabilityLevel: metrics.ALPHA,
	Help: "Whether FailoverBarrier lets the pods of a profile through (1) or waits for the caches to catch up (0).",
}, []string{"profile"})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(barrierOpen) })
