// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"time"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// ahead is how many changes may be written before the watch cache has passed on the first. Upstream keeps room for at
	// least 10 for each watch.
	ahead = 8
	// maxPause bounds how long a change waits for earlier ones.
	maxPause = 100 * time.Millisecond
)

// pacer keeps writers from being faster than the watch cache: if many agents change at once, the cache would end watches
// whose clients read well.
type pacer struct {
	written int
	passed  chan uint64
	cancel  context.CancelFunc
}

// startPacer begins a watch that sees what all others do.
func (w *Watched) startPacer() {
	ctx, cancel := context.WithCancel(context.Background())
	w.pace = &pacer{passed: make(chan uint64, 1), cancel: cancel}
	go func() {
		for ctx.Err() == nil {
			if in, err := w.generic.Watch(ctx, &metainternalversion.ListOptions{}); err == nil {
				w.follow(ctx, in)
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
}

// follow notes the resource versions of events.
func (w *Watched) follow(ctx context.Context, in watch.Interface) {
	defer in.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-in.ResultChan():
			if !ok || e.Type == watch.Error {
				return
			}
			rv, err := w.Store.Versioner().ObjectResourceVersion(e.Object)
			if err != nil {
				continue
			}
			select { // replace what nobody has taken
			case <-w.pace.passed:
			default:
			}
			w.pace.passed <- rv
		}
	}
}

// Put creates or replaces an object, see memstore.Store. One goroutine may call it.
func (w *Watched) Put(key string, obj runtime.Object) error {
	err := w.Store.Put(key, obj)
	w.wait()
	return err
}

// Remove deletes an object, if there is one. One goroutine may call it.
func (w *Watched) Remove(key string) error {
	err := w.Store.Remove(key)
	w.wait()
	return err
}

func (w *Watched) wait() {
	w.pace.written++
	if w.pace.written%ahead != 0 {
		return
	}
	last, err := w.Store.GetCurrentResourceVersion(context.Background())
	if err != nil {
		return
	}
	limit := time.NewTimer(maxPause)
	defer limit.Stop()
	for {
		select {
		case rv := <-w.pace.passed:
			if rv >= last {
				return
			}
		case <-limit.C:
			return
		}
	}
}
