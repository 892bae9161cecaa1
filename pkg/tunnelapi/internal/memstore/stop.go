// SPDX-License-Identifier: Apache-2.0

package memstore

import (
	"time"

	"k8s.io/apiserver/pkg/storage/cacher"
)

// stopLimit is how long StopCache waits. A watch cache that is not blocked stops within milliseconds.
const stopLimit = 2 * time.Second

// StopCache stops the watch cache over a store. It leaves the cache behind after two seconds: if more than 100 events wait when
// Stop is called, upstream's reflector sends the next one to a channel that nothing reads any more, and Stop waits for
// the reflector (Cacher.processEvent in k8s.io/apiserver/pkg/storage/cacher/cacher.go of v0.36).
func StopCache(d *cacher.CacheDelegator, c *cacher.Cacher) {
	d.Stop()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		c.Stop()
	}()
	select {
	case <-stopped:
	case <-time.After(stopLimit):
	}
}
