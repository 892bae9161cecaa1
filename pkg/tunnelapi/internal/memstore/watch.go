// SPDX-License-Identifier: Apache-2.0

package memstore

import (
	"context"
	"errors"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
)

// item is what waits for a watcher: a change, or a bookmark at a resource version.
type item struct {
	change   *change
	bookmark uint64
	initial  bool // the bookmark ends the initial events
}

// watcher is one watch. A goroutine passes on what waits.
type watcher struct {
	s         *Store
	prefix    string
	recursive bool
	progress  bool
	pred      storage.SelectionPredicate
	ctx       context.Context
	cancel    context.CancelFunc
	out       chan watch.Event
	wake      chan struct{}

	mu      sync.Mutex
	waiting []item
	lost    bool // it fell too far behind
}

// Watch implements storage.Interface.
func (s *Store) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	prefix, err := storage.PrepareKey(s.prefix, key, opts.Recursive)
	if err != nil {
		return nil, err
	}
	rv, err := versioner.ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	w := &watcher{s: s, prefix: prefix, recursive: opts.Recursive, progress: opts.ProgressNotify, pred: opts.Predicate,
		out: make(chan watch.Event, 100), wake: make(chan struct{}, 1)}
	w.ctx, w.cancel = context.WithCancel(ctx)
	failed := s.begin(w, rv, opts)
	utilflowcontrol.WatchInitialized(ctx)
	go w.run(failed)
	return w, nil
}

// begin gives the watcher what it must see first and registers it. It returns why the watch cannot begin there.
func (s *Store) begin(w *watcher, rv uint64, opts storage.ListOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	initial := opts.SendInitialEvents != nil && *opts.SendInitialEvents || opts.SendInitialEvents == nil && rv == 0
	switch {
	case rv > s.rv:
		return storage.NewTooLargeResourceVersionError(rv, s.rv, 1)
	case initial:
		s.now.AscendGreaterOrEqual(entry{key: w.prefix}, func(e entry) bool {
			if !within(e.key, w.prefix, w.recursive) {
				return false
			}
			w.waiting = append(w.waiting, item{change: &change{key: e.key, obj: e.obj, rv: e.rv}})
			return true
		})
		if opts.SendInitialEvents != nil && opts.Predicate.AllowWatchBookmarks {
			w.waiting = append(w.waiting, item{bookmark: s.rv, initial: true})
		}
	case rv != 0:
		if rv < s.compacted {
			return apierrors.NewResourceExpired("The resourceVersion for the provided watch is too old.")
		}
		for i := range s.changes {
			if s.changes[i].rv > rv {
				w.waiting = append(w.waiting, item{change: &s.changes[i]})
			}
		}
	}
	s.watchers[w] = struct{}{}
	return nil
}

// RequestWatchProgress implements storage.Interface.
func (s *Store) RequestWatchProgress(context.Context) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for w := range s.watchers {
		if w.progress {
			w.push(item{bookmark: s.rv})
		}
	}
	return nil
}

// push queues an item. It does not block.
func (w *watcher) push(i item) {
	w.mu.Lock()
	if len(w.waiting) >= w.s.patience {
		w.lost, w.waiting = true, nil
	}
	if !w.lost {
		w.waiting = append(w.waiting, i)
	}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take returns what waits, at least one item. It returns false when the watch is over.
func (w *watcher) take() ([]item, bool) {
	for {
		w.mu.Lock()
		items, lost := w.waiting, w.lost
		w.waiting = nil
		w.mu.Unlock()
		switch {
		case lost:
			w.fail(apierrors.NewResourceExpired("The watch has fallen too far behind: start a new one."))
			return nil, false
		case len(items) > 0:
			return items, true
		}
		select {
		case <-w.wake:
		case <-w.ctx.Done():
			return nil, false
		}
	}
}

func (w *watcher) run(failed error) {
	defer close(w.out)
	defer w.cancel()
	defer w.forget()
	if failed != nil {
		w.fail(failed)
		return
	}
	for {
		items, ok := w.take()
		if !ok {
			return
		}
		for _, i := range items {
			if e := w.event(i); e != nil && !w.send(*e) {
				return
			}
		}
	}
}

func (w *watcher) forget() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	delete(w.s.watchers, w)
}

func (w *watcher) send(e watch.Event) bool {
	select {
	case w.out <- e:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// fail ends the watch with an error.
func (w *watcher) fail(err error) {
	status := apierrors.NewInternalError(err).Status()
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		status = known.Status()
	}
	w.send(watch.Event{Type: watch.Error, Object: &status})
}

// event is what the watcher sees of an item, or nil. Its object is the stored one, which must not be changed: the watch
// cache then has no copies of its own.
func (w *watcher) event(i item) *watch.Event {
	if i.change == nil {
		return w.bookmark(i)
	}
	c := i.change
	if !within(c.key, w.prefix, w.recursive) {
		return nil
	}
	now, before := w.matches(c.obj), w.matches(c.prev)
	switch {
	case now && before:
		return &watch.Event{Type: watch.Modified, Object: c.obj}
	case now:
		return &watch.Event{Type: watch.Added, Object: c.obj}
	case before:
		last := c.prev.DeepCopyObject()
		_ = versioner.UpdateObject(last, c.rv) // it could be set when the object was stored
		return &watch.Event{Type: watch.Deleted, Object: last}
	}
	return nil
}

func (w *watcher) matches(obj runtime.Object) bool {
	if obj == nil {
		return false
	}
	if w.pred.Empty() {
		return true
	}
	ok, err := w.pred.Matches(obj)
	return err == nil && ok
}

func (w *watcher) bookmark(i item) *watch.Event {
	obj := w.s.newFunc()
	if err := versioner.UpdateObject(obj, i.bookmark); err != nil {
		return nil
	}
	if i.initial {
		if m, ok := obj.(metav1.Object); ok {
			m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		}
	}
	return &watch.Event{Type: watch.Bookmark, Object: obj}
}

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.cancel() }

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.out }
