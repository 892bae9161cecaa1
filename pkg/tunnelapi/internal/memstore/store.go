// SPDX-License-Identifier: Apache-2.0

package memstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/google/btree"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	storagefeature "k8s.io/apiserver/pkg/storage/feature"
)

// Limits of what a store remembers of the past.
const (
	// History is for how long a store remembers changes. Upstream's watch cache keeps at least 75 seconds, and the objects
	// of the past are most of the memory that many agents take.
	History = 90 * time.Second
	// maxChanges is how many changes it remembers at most.
	maxChanges = 20_000
)

// entry is an object under its key. Objects never change: an update puts another one in the place.
type entry struct {
	key string
	obj runtime.Object
	rv  uint64
}

func less(a, b entry) bool { return a.key < b.key }

// tree holds the objects at one resource version.
type tree = btree.BTreeG[entry]

// change is a change of one object. A deletion has no object, a creation no previous one.
type change struct {
	key        string
	obj, prev  runtime.Object
	rv, prevRV uint64
	at         time.Time
}

// Store is the storage of one resource.
type Store struct {
	prefix  string
	newFunc func() runtime.Object

	mu        sync.RWMutex
	now       *tree
	rv        uint64
	compacted uint64 // lists at older resource versions are refused
	changes   []change
	watchers  map[*watcher]struct{}
	// patience is how many events may wait for a watcher. One that falls further behind is ended.
	patience int
}

var _ storage.Interface = (*Store)(nil)

// Epoch is the number after which a process that started at a time begins to count changes. Each change adds one. No
// process makes a change in each nanosecond, so its numbers stay below the epochs of all that start later. Below 2262 an
// epoch fits into an int64, as it must in continue tokens.
func Epoch(started time.Time) uint64 { return uint64(started.UnixNano()) }

// New returns an empty store for keys below prefix, which begins and ends with a slash.
func New(prefix string, newFunc func() runtime.Object, started time.Time) *Store {
	first := Epoch(started) + 1
	declareSupport()
	return &Store{prefix: prefix, newFunc: newFunc, now: btree.NewG(32, less), rv: first, compacted: first - 1, watchers: map[*watcher]struct{}{}, patience: 4 * maxChanges}
}

// declareSupport is for the whole process: upstream's cache reads a variable of its package, without a lock.
var declareSupport = sync.OnceFunc(func() { storagefeature.DefaultFeatureSupportChecker = supported{} })

// supported says that the store has what the watch cache needs of etcd for streaming lists.
type supported struct {
	storagefeature.FeatureSupportChecker
}

// Supports implements storagefeature.FeatureSupportChecker.
func (supported) Supports(feature storage.Feature) bool {
	return feature == storage.RequestWatchProgress
}

var versioner = storage.APIObjectVersioner{}

// Versioner implements storage.Interface.
func (s *Store) Versioner() storage.Versioner { return versioner }

// Put creates or replaces an object. It takes the object, which the caller must not change afterwards.
func (s *Store) Put(key string, obj runtime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.putLocked(key, obj)
	return err
}

// Remove deletes an object, if there is one.
func (s *Store) Remove(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.removeLocked(key)
	return err
}

// Peek returns the object under a key, or nil. The caller must not change it.
func (s *Store) Peek(key string) runtime.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, _ := s.now.Get(entry{key: key})
	return e.obj
}

func (s *Store) putLocked(key string, obj runtime.Object) (uint64, error) {
	rv := s.rv + 1
	if err := versioner.UpdateObject(obj, rv); err != nil {
		return 0, fmt.Errorf("set the resource version of %s: %w", key, err)
	}
	old, _ := s.now.ReplaceOrInsert(entry{key, obj, rv})
	s.noteLocked(change{key: key, obj: obj, prev: old.obj, rv: rv, prevRV: old.rv})
	return rv, nil
}

// removeLocked returns the object as it was, with the resource version of the deletion. It is nil if there was none.
func (s *Store) removeLocked(key string) (runtime.Object, error) {
	old, ok := s.now.Get(entry{key: key})
	if !ok {
		return nil, nil
	}
	rv := s.rv + 1
	last := old.obj.DeepCopyObject()
	if err := versioner.UpdateObject(last, rv); err != nil {
		return nil, fmt.Errorf("set the resource version of %s: %w", key, err)
	}
	s.now.Delete(old)
	s.noteLocked(change{key: key, prev: old.obj, rv: rv, prevRV: old.rv})
	return last, nil
}

// noteLocked remembers a change and tells the watchers.
func (s *Store) noteLocked(c change) {
	s.rv, c.at = c.rv, time.Now()
	s.changes = append(s.changes, c)
	s.trimLocked(c.at)
	for w := range s.watchers {
		w.push(item{change: &c})
	}
}

// trimLocked forgets old changes.
func (s *Store) trimLocked(now time.Time) {
	n := 0
	for n < len(s.changes) && (len(s.changes)-n > maxChanges || now.Sub(s.changes[n].at) > History) {
		n++
	}
	if n > 0 {
		s.compactLocked(s.changes[n-1].rv)
	}
}

// compactLocked forgets how the objects were before the resource version.
func (s *Store) compactLocked(rv uint64) {
	n := 0
	for n < len(s.changes) && s.changes[n].rv <= rv {
		n++
	}
	clear(s.changes[:n]) // append copies what is left when there is no more room behind it
	s.changes = s.changes[n:]
	s.compacted = max(s.compacted, rv)
}

// bumpLocked raises the resource version without a change.
func (s *Store) bumpLocked() uint64 {
	s.rv++
	return s.rv
}

// Create implements storage.Interface.
func (s *Store) Create(_ context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	key, err := storage.PrepareKey(s.prefix, key, false)
	if err != nil {
		return err
	}
	if v, err := versioner.ObjectResourceVersion(obj); err == nil && v != 0 {
		return storage.ErrResourceVersionSetOnCreate
	}
	if err := versioner.PrepareObjectForStorage(obj); err != nil {
		return fmt.Errorf("prepare object for storage: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.now.Get(entry{key: key}); ok {
		return storage.NewKeyExistsError(key, 0)
	}
	kept := obj.DeepCopyObject()
	rv, err := s.putLocked(key, kept)
	if err != nil {
		return err
	}
	s.expireLater(key, rv, ttl)
	if out == nil {
		return nil
	}
	return set(out, kept.DeepCopyObject())
}

// expireLater removes the object after ttl seconds if it has not changed until then.
func (s *Store) expireLater(key string, rv, ttl uint64) {
	if ttl == 0 {
		return
	}
	time.AfterFunc(time.Duration(ttl)*time.Second, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if e, ok := s.now.Get(entry{key: key}); ok && e.rv == rv {
			_, _ = s.removeLocked(key) // its resource version could be set before
		}
	})
}

// set makes out, a pointer to an object, equal to obj.
func set(out, obj runtime.Object) error {
	v, err := conversion.EnforcePtr(out)
	if err != nil {
		return fmt.Errorf("unable to convert output object to pointer: %w", err)
	}
	from := reflect.ValueOf(obj).Elem()
	if from.Type() != v.Type() {
		return fmt.Errorf("stored object is a %v, not a %v", from.Type(), v.Type())
	}
	v.Set(from)
	return nil
}

// Get implements storage.Interface.
func (s *Store) Get(_ context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	key, err := storage.PrepareKey(s.prefix, key, false)
	if err != nil {
		return err
	}
	s.mu.RLock()
	e, ok := s.now.Get(entry{key: key})
	rv := s.rv
	s.mu.RUnlock()
	if err := atLeast(opts.ResourceVersion, rv); err != nil {
		return err
	}
	if !ok {
		if opts.IgnoreNotFound {
			return runtime.SetZeroValue(out)
		}
		return storage.NewKeyNotFoundError(key, 0)
	}
	return set(out, e.obj.DeepCopyObject())
}

// atLeast fails if a client asks for a resource version that the store has not reached.
func atLeast(want string, rv uint64) error {
	if want == "" {
		return nil
	}
	least, err := versioner.ParseResourceVersion(want)
	if err != nil {
		return badVersion(err)
	}
	if least > rv {
		return storage.NewTooLargeResourceVersionError(least, rv, 0)
	}
	return nil
}

// Stats implements storage.Interface.
func (s *Store) Stats(context.Context) (storage.Stats, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return storage.Stats{ObjectCount: int64(s.now.Len())}, nil
}

// ReadinessCheck implements storage.Interface.
func (s *Store) ReadinessCheck() error { return nil }

// EnableResourceSizeEstimation implements storage.Interface. The store does not know the size of its objects.
func (s *Store) EnableResourceSizeEstimation(keys storage.KeysFunc) error {
	if keys == nil {
		return errors.New("KeysFunc cannot be nil")
	}
	return nil
}

// GetCurrentResourceVersion implements storage.Interface.
func (s *Store) GetCurrentResourceVersion(context.Context) (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.rv, nil
}

// CompactRevision implements storage.Interface.
func (s *Store) CompactRevision() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return int64(s.compacted)
}

// atLocked returns the objects at a resource version: those of now, with later changes undone. To keep them instead would
// take much more memory, and few clients ask for the past.
func (s *Store) atLocked(rv uint64) *tree {
	t := s.now.Clone()
	for i := len(s.changes) - 1; i >= 0 && s.changes[i].rv > rv; i-- {
		c := &s.changes[i]
		if c.prev == nil {
			t.Delete(entry{key: c.key})
			continue
		}
		t.ReplaceOrInsert(entry{c.key, c.prev, c.prevRV})
	}
	return t
}

// within reports whether a key is below a prefix.
func within(key, prefix string, recursive bool) bool {
	if recursive {
		return strings.HasPrefix(key, prefix)
	}
	return key == prefix
}
