// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Limits of what waits for a client that reads its watch slowly.
const (
	// maxWaiting is how many events wait for it at most.
	maxWaiting = 10_000
	// maxStalled is how long it may take none while some wait.
	maxStalled = 15 * time.Second
)

var dropped = metrics.NewCounterVec(&metrics.CounterOpts{
	Name: "fairlead_apiserver_dropped_watches_total", StabilityLevel: metrics.ALPHA,
	Help: "Watches that were ended because their clients read too slowly, by resource.",
}, []string{"resource"})

func init() { legacyregistry.MustRegister(dropped) } //nolint:gochecknoinits // metrics are registered as those of Kubernetes

// relay stands between upstream's watch cache and a client. The cache has room for few events of each watch, and ends
// watches that are full for some milliseconds, also of clients that read well, if many agents change at once. The relay
// always takes events from the cache. It ends the watch of a client that reads none for long.
type relay struct {
	in       watch.Interface
	out      chan watch.Event
	done     chan struct{}
	stop     sync.Once
	resource string
	// start is the resource version at which the watch began, and seen that of the last event. Events up to start are those
	// of the list that a watch may begin with. They do not count as waiting: the list may be longer than maxWaiting, and its
	// objects are held anyway.
	start uint64
	seen  atomic.Uint64
	// limit and patience are maxWaiting and maxStalled.
	limit    int
	patience time.Duration
}

func newRelay(in watch.Interface, resource string, start uint64) *relay {
	r := &relay{in: in, out: make(chan watch.Event, 10), done: make(chan struct{}), resource: resource, start: start, limit: maxWaiting, patience: maxStalled}
	r.seen.Store(start)
	return r
}

// ResultChan implements watch.Interface.
func (r *relay) ResultChan() <-chan watch.Event { return r.out }

// behind tells whether the relay does not have the event of a resource version yet.
func (r *relay) behind(rv uint64) bool { return r.seen.Load() < rv }

// Stop implements watch.Interface.
func (r *relay) Stop() { r.stop.Do(func() { close(r.done) }) }

// see notes the resource version of an event, and tells whether the event is one of the list that the watch began with.
func (r *relay) see(e watch.Event) (ofList bool) {
	rv, err := (storage.APIObjectVersioner{}).ObjectResourceVersion(e.Object)
	if err != nil || rv == 0 {
		return false
	}
	r.seen.Store(max(rv, r.seen.Load()))
	return rv <= r.start
}

func (r *relay) run() {
	defer close(r.out)
	defer r.in.Stop()
	in := r.in.ResultChan()
	var waiting []watch.Event
	listed := 0         // of those that wait
	var moved time.Time // when the client last took an event, or needed to take none
	for in != nil || len(waiting) > 0 {
		var out chan<- watch.Event
		var next watch.Event
		if len(waiting) > 0 {
			out, next = r.out, waiting[0]
		}
		select {
		case <-r.done:
			return
		case out <- next:
			waiting[0] = watch.Event{} // its object may be freed
			waiting, moved, listed = waiting[1:], time.Now(), max(0, listed-1)
		case e, ok := <-in:
			if !ok {
				in = nil
				continue
			}
			ofList := r.see(e)
			if len(waiting) == 0 {
				moved = time.Now()
			}
			if len(waiting)-listed >= r.limit || time.Since(moved) > r.patience {
				dropped.WithLabelValues(r.resource).Inc()
				return
			}
			waiting = append(waiting, e)
			if ofList {
				listed++
			}
		}
	}
}
