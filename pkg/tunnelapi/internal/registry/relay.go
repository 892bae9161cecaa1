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
	// gather is how long the first of some events waits for others. Agents change together, and the API server sends what it
	// finds at once in one piece: with 1,000 watches, a piece for each event takes most of the processor's time.
	gather = 20 * time.Millisecond
	// piece is how many events the API server finds at most.
	piece = 32
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
	// ended is called when the watch of the cache has ended, and the relay has no more events to take.
	ended func()
}

func newRelay(in watch.Interface, resource string, start uint64) *relay {
	r := &relay{in: in, out: make(chan watch.Event, piece), done: make(chan struct{}), resource: resource, start: start, limit: maxWaiting, patience: maxStalled, ended: func() {}}
	r.seen.Store(start)
	return r
}

// ResultChan implements watch.Interface.
func (r *relay) ResultChan() <-chan watch.Event { return r.out }

// behind reports whether the relay does not have the event of a resource version yet.
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

// queue is what waits for the client.
type queue struct {
	events []watch.Event
	listed int       // of those, how many are of the list that the watch began with
	moved  time.Time // when the client last took an event, or needed to take none
}

// add adds an event, and tells whether it is the only one.
func (q *queue) add(e watch.Event, ofList bool) (first bool) {
	if first = len(q.events) == 0; first {
		q.moved = time.Now()
	}
	q.events = append(q.events, e)
	if ofList {
		q.listed++
	}
	return first
}

// taken removes the first event.
func (q *queue) taken() {
	q.events[0] = watch.Event{} // its object may be freed
	q.events, q.moved, q.listed = q.events[1:], time.Now(), max(0, q.listed-1)
}

// overdue reports whether the client is too slow: it has taken nothing for long while events wait, or too many of them wait.
func (q *queue) overdue(limit int, patience time.Duration) bool {
	return len(q.events) > 0 && (len(q.events)-q.listed > limit || time.Since(q.moved) >= patience)
}

func (r *relay) run() {
	defer close(r.out)
	defer r.in.Stop()
	in := r.in.ResultChan()
	var waiting queue
	gathered, patience := time.NewTimer(0), time.NewTimer(r.patience)
	<-gathered.C
	defer patience.Stop()
	gathering := false
	for in != nil || len(waiting.events) > 0 {
		var out chan<- watch.Event
		var next watch.Event
		if len(waiting.events) > 0 && !gathering {
			out, next = r.out, waiting.events[0]
		}
		select {
		case <-r.done:
			return
		case <-gathered.C:
			gathering = false
		case <-patience.C:
			if left := r.patience - time.Since(waiting.moved); left > 0 {
				patience.Reset(left)
			}
		case out <- next:
			waiting.taken()
			continue
		case e, ok := <-in:
			if !ok {
				in = nil
				r.ended()
				continue
			}
			if waiting.add(e, r.see(e)) {
				gathering = true
				gathered.Reset(gather)
				patience.Reset(r.patience)
			}
		}
		if waiting.overdue(r.limit, r.patience) {
			dropped.WithLabelValues(r.resource).Inc()
			return
		}
	}
}
