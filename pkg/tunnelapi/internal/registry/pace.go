// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// ahead is how many changes may be written before all watches have the first. Upstream keeps room for at least 10 for
	// each watch.
	ahead = 8
	// maxPause bounds how long a change waits for earlier ones, and pauseStep is how often that is checked.
	maxPause, pauseStep = time.Second, time.Millisecond
)

// pacer keeps writers from being faster than the watches: if many agents change at once, or the machine is busy, upstream's
// watch cache would end watches whose clients read well.
type pacer struct {
	written int

	mu     sync.Mutex
	relays map[*relay]struct{}
}

// start relays a watch of the cache. Writers wait for it while it gets all events. over is called when it has ended.
func (p *pacer) start(in watch.Interface, resource string, from uint64, all bool, over func()) *relay {
	r := newRelay(in, resource, from)
	if all {
		p.add(r)
		r.ended = func() { p.remove(r) }
	}
	go func() {
		defer over()
		defer p.remove(r)
		r.run()
	}()
	return r
}

func (p *pacer) add(r *relay) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.relays == nil {
		p.relays = map[*relay]struct{}{}
	}
	p.relays[r] = struct{}{}
}

func (p *pacer) remove(r *relay) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.relays, r)
}

// passed reports whether all watches have the events up to a resource version.
func (p *pacer) passed(rv uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.relays {
		if r.behind(rv) {
			return false
		}
	}
	return true
}

// wait is called after each change. Relays take events at once, so a client that reads slowly delays nothing.
func (p *pacer) wait(last uint64) {
	if p.written++; p.written%ahead != 0 {
		return
	}
	for end := time.Now().Add(maxPause); !p.passed(last) && time.Now().Before(end); {
		time.Sleep(pauseStep)
	}
}

// Put creates or replaces an object, see memstore.Store. One goroutine may call it.
func (w *Watched) Put(key string, obj runtime.Object) error { return w.paced(w.Store.Put(key, obj)) }

// Remove deletes an object, if there is one. One goroutine may call it.
func (w *Watched) Remove(key string) error { return w.paced(w.Store.Remove(key)) }

func (w *Watched) paced(err error) error {
	if last, failed := w.Store.GetCurrentResourceVersion(context.Background()); failed == nil {
		w.pace.wait(last)
	}
	return err
}
