// SPDX-License-Identifier: Apache-2.0

package memstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/client-go/tools/cache"
)

const prefix = "/pods/"

// beginning is an epoch of 0: upstream's tests expect that resource versions begin at 1, as in a new etcd.
var beginning = time.Unix(0, 0)

var (
	scheme = runtime.NewScheme()
	codecs = serializer.NewCodecFactory(scheme)
)

func init() { //nolint:gochecknoinits // schemes are filled as the API groups of Kubernetes do
	utilruntime.Must(example.AddToScheme(scheme))
	utilruntime.Must(examplev1.AddToScheme(scheme))
}

func newPod() runtime.Object { return &example.Pod{} }

func podAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	pod, ok := obj.(*example.Pod)
	if !ok {
		return nil, nil, fmt.Errorf("a %T is not a pod", obj)
	}
	return pod.Labels, fields.Set{
		"spec.nodeName": pod.Spec.NodeName, "spec.restartPolicy": string(pod.Spec.RestartPolicy), "status.phase": string(pod.Status.Phase),
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace,
	}, nil
}

// setup makes a storage for the suite.
type setup struct {
	name string
	make func(t *testing.T, clusterScoped bool) (storage.Interface, *Store)
}

// setups are the store alone, and below upstream's watch cache as the API server uses it.
var setups = []setup{
	{"store", func(*testing.T, bool) (storage.Interface, *Store) {
		s := New(prefix, newPod, beginning)
		return s, s
	}},
	{"cached", func(t *testing.T, clusterScoped bool) (storage.Interface, *Store) {
		s := New(prefix, newPod, beginning)
		return cached(t, s, clusterScoped), s
	}},
}

// cached puts upstream's watch cache above a store, with the indexes that upstream's own tests use.
func cached(t *testing.T, s *Store, clusterScoped bool) storage.Interface {
	t.Helper()
	d, c := newCache(t, s, clusterScoped)
	t.Cleanup(func() { StopCache(d, c) })
	return d
}

func newCache(t *testing.T, s *Store, clusterScoped bool) (*cacher.CacheDelegator, *cacher.Cacher) {
	t.Helper()
	key := storage.NamespaceKeyFunc
	if clusterScoped {
		key = storage.NoNamespaceKeyFunc
	}
	node := func(obj any) ([]string, error) { return []string{obj.(*example.Pod).Spec.NodeName}, nil }
	namespace := func(obj any) ([]string, error) { return []string{obj.(*example.Pod).Namespace}, nil }
	c, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage: s, Versioner: s.Versioner(), GroupResource: schema.GroupResource{Resource: "pods"}, EventsHistoryWindow: History,
		ResourcePrefix: prefix, KeyFunc: func(obj runtime.Object) (string, error) { return key(prefix, obj) }, GetAttrsFunc: podAttrs,
		NewFunc: newPod, NewListFunc: func() runtime.Object { return &example.PodList{} }, Codec: codecs.LegacyCodec(examplev1.SchemeGroupVersion),
		IndexerFuncs: storage.IndexerFuncs{"spec.nodeName": func(obj runtime.Object) string { return obj.(*example.Pod).Spec.NodeName }},
		Indexers:     &cache.Indexers{"f:spec.nodeName": node, "f:metadata.namespace": namespace},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return cacher.NewCacheDelegator(c, s), c
}

// settled returns from Create when the watch cache has the object, as the storage of upstream's own tests does.
type settled struct{ *cacher.CacheDelegator }

func (c *settled) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if err := c.CacheDelegator.Create(ctx, key, obj, out, ttl); err != nil || out == nil || ttl > 0 {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		now := newPod()
		err := c.Get(ctx, key, storage.GetOptions{ResourceVersion: "0"}, now)
		if err != nil && !storage.IsNotFound(err) {
			return false, err
		}
		return err == nil && apiequality.Semantic.DeepEqual(now, out), nil
	})
}

// paced gives the watch cache time to pass each write on, which a write to etcd takes by itself: the cache closes a watcher that
// does not take its events within some milliseconds.
type paced struct{ *cacher.CacheDelegator }

func (c *paced) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool, preconditions *storage.Preconditions,
	update storage.UpdateFunc, cached runtime.Object) error {
	err := c.CacheDelegator.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached)
	time.Sleep(20 * time.Millisecond)
	return err
}

func delayedWatchDelivery(ctx context.Context, t *testing.T, s storage.Interface, _ *Store) {
	if d, ok := s.(*cacher.CacheDelegator); ok {
		s = &paced{CacheDelegator: d}
	}
	storagetesting.RunTestDelayedWatchDelivery(ctx, t, s)
}

// raise raises the resource version without a change, as writes to other resources do in etcd.
func raise(s *Store) storagetesting.IncreaseRVFunc {
	return func(context.Context, *testing.T) int64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return int64(s.bumpLocked())
	}
}

// compact forgets what was before a resource version. As in etcd, that raises the resource version.
func compact(s *Store) storagetesting.Compaction {
	return func(ctx context.Context, t *testing.T, version string) {
		rv, err := versioner.ParseResourceVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.compactLocked(rv)
		s.mu.Unlock()
		raise(s)(ctx, t)
	}
}

// TestSuite runs upstream's tests of storage.Interface, against the store and against the watch cache above it.
// It observes API-10, API-81 and API-87 of docs/requirements.md.
func TestSuite(t *testing.T) {
	for _, set := range setups {
		for name, test := range suite {
			t.Run(set.name+"/"+name, func(t *testing.T) {
				storage, s := set.make(t, false)
				test(t.Context(), t, storage, s)
			})
		}
		t.Run(set.name+"/ClusterScopedWatch", func(t *testing.T) {
			storage, _ := set.make(t, true)
			storagetesting.RunTestClusterScopedWatch(t.Context(), t, storage)
		})
	}
}

type suiteTest func(ctx context.Context, t *testing.T, storage storage.Interface, s *Store)

// plain is a test that needs nothing but the storage.
func plain(test func(context.Context, *testing.T, storage.Interface)) suiteTest {
	return func(ctx context.Context, t *testing.T, storage storage.Interface, _ *Store) { test(ctx, t, storage) }
}

// settling is a test that expects that the watch cache has what was created.
func settling(test func(context.Context, *testing.T, storage.Interface)) suiteTest {
	return func(ctx context.Context, t *testing.T, storage storage.Interface, _ *Store) {
		if d, ok := storage.(*cacher.CacheDelegator); ok {
			storage = &settled{CacheDelegator: d}
		}
		test(ctx, t, storage)
	}
}

func noCalls(*testing.T, uint64, uint64) {}

// suite are upstream's tests that run in both setups. storeOnly and skipped, below, are the others.
var suite = map[string]suiteTest{
	"Create": func(ctx context.Context, t *testing.T, st storage.Interface, s *Store) {
		storagetesting.RunTestCreate(ctx, t, st, func(_ context.Context, t *testing.T, key string) {
			if s.Peek(key) == nil {
				t.Errorf("%s is not in the store", key)
			}
		})
	},
	"CreateWithTTL":                      plain(storagetesting.RunTestCreateWithTTL),
	"CreateWithKeyExist":                 plain(storagetesting.RunTestCreateWithKeyExist),
	"Get":                                plain(storagetesting.RunTestGet),
	"UnconditionalDelete":                plain(storagetesting.RunTestUnconditionalDelete),
	"ConditionalDelete":                  plain(storagetesting.RunTestConditionalDelete),
	"DeleteWithSuggestion":               plain(storagetesting.RunTestDeleteWithSuggestion),
	"DeleteWithSuggestionAndConflict":    plain(storagetesting.RunTestDeleteWithSuggestionAndConflict),
	"DeleteWithConflict":                 plain(storagetesting.RunTestDeleteWithConflict),
	"DeleteWithSuggestionOfDeleted":      plain(storagetesting.RunTestDeleteWithSuggestionOfDeletedObject),
	"ValidateDeletionWithSuggestion":     plain(storagetesting.RunTestValidateDeletionWithSuggestion),
	"ValidateDeletionOnlySuggestion":     plain(storagetesting.RunTestValidateDeletionWithOnlySuggestionValid),
	"PreconditionalDelete":               plain(storagetesting.RunTestPreconditionalDeleteWithSuggestion),
	"PreconditionalDeleteOnlySuggestion": plain(storagetesting.RunTestPreconditionalDeleteWithOnlySuggestionPass),
	"ListPaging":                         plain(storagetesting.RunTestListPaging),
	"GetListRecursivePrefix":             plain(storagetesting.RunTestGetListRecursivePrefix),
	"NamespaceScopedList":                plain(storagetesting.RunTestNamespaceScopedList),
	"KeySchema":                          plain(storagetesting.RunTestKeySchema),
	"GuaranteedUpdateWithTTL":            plain(storagetesting.RunTestGuaranteedUpdateWithTTL),
	"GuaranteedUpdateWithConflict":       plain(storagetesting.RunTestGuaranteedUpdateWithConflict),
	"GuaranteedUpdateSuggestionConflict": plain(storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict),
	"Watch":                              plain(storagetesting.RunTestWatch),
	"DeleteTriggerWatch":                 plain(storagetesting.RunTestDeleteTriggerWatch),
	"WatchFromNonZero":                   plain(storagetesting.RunTestWatchFromNonZero),
	"DelayedWatchDelivery":               delayedWatchDelivery,
	"WatcherTimeout":                     plain(storagetesting.RunTestWatcherTimeout),
	"WatchDeleteEventLatestRV":           plain(storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV),
	"WatchInitializationSignal":          plain(storagetesting.RunTestWatchInitializationSignal),
	"NamespaceScopedWatch":               plain(storagetesting.RunTestNamespaceScopedWatch),
	"SendInitialEventsCompatibility":     plain(storagetesting.RunSendInitialEventsBackwardCompatibility),
	"WatchSemantics":                     settling(storagetesting.RunWatchSemantics),
	"WatchSemanticInitialEvents":         settling(storagetesting.RunWatchSemanticInitialEventsExtended),
	"WatchListMatchSingle":               settling(storagetesting.RunWatchListMatchSingle),
	"GetListNonRecursive": func(ctx context.Context, t *testing.T, st storage.Interface, s *Store) {
		storagetesting.RunTestGetListNonRecursive(ctx, t, raise(s), st)
	},
	"ListContinuation": func(ctx context.Context, t *testing.T, st storage.Interface, _ *Store) {
		storagetesting.RunTestListContinuation(ctx, t, st, noCalls)
	},
	"ListPaginationRareObject": func(ctx context.Context, t *testing.T, st storage.Interface, _ *Store) {
		storagetesting.RunTestListPaginationRareObject(ctx, t, st, noCalls)
	},
	"ListContinuationWithFilter": func(ctx context.Context, t *testing.T, st storage.Interface, _ *Store) {
		storagetesting.RunTestListContinuationWithFilter(ctx, t, st, noCalls)
	},
}

// TestSuiteStore runs those of upstream's tests that control the history, which the watch cache hides or reads later,
// and those that expect what only storage without a watch cache does.
// It observes API-21, API-82, API-83 and EXT-20 of docs/requirements.md.
func TestSuiteStore(t *testing.T) {
	for name, test := range map[string]suiteTest{
		"List": func(ctx context.Context, t *testing.T, st storage.Interface, s *Store) {
			storagetesting.RunTestList(ctx, t, st, compact(s), false, nil)
		},
		"ConsistentList": func(ctx context.Context, t *testing.T, st storage.Interface, s *Store) {
			storagetesting.RunTestConsistentList(ctx, t, st, raise(s), false, true, false)
		},
		"ListInconsistentContinuation": func(ctx context.Context, t *testing.T, st storage.Interface, s *Store) {
			storagetesting.RunTestListInconsistentContinuation(ctx, t, st, compact(s))
		},
		"CompactRevision": func(ctx context.Context, t *testing.T, st storage.Interface, s *Store) {
			storagetesting.RunTestCompactRevision(ctx, t, st, raise(s), func(_ context.Context, t *testing.T, version string) {
				rv, err := versioner.ParseResourceVersion(version)
				if err != nil {
					t.Fatal(err)
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				s.compactLocked(rv)
			})
		},
		"WatchFromZero": func(ctx context.Context, t *testing.T, st storage.Interface, s *Store) {
			storagetesting.RunTestWatchFromZero(ctx, t, st, compact(s))
		},
		"WatchContextCancel": plain(storagetesting.RunTestWatchContextCancel),
	} {
		t.Run(name, func(t *testing.T) {
			s := New(prefix, newPod, beginning)
			test(t.Context(), t, s, s)
		})
	}
}

// TestSuiteCached runs those that need the watch cache.
// It observes API-12, API-80, API-87 and EXT-20 of docs/requirements.md.
func TestSuiteCached(t *testing.T) {
	for name, test := range map[string]suiteTest{
		"ConsistentList": func(ctx context.Context, t *testing.T, st storage.Interface, s *Store) {
			storagetesting.RunTestConsistentList(ctx, t, st, raise(s), true, true, true)
		},
		"WatchFromZero": func(ctx context.Context, t *testing.T, st storage.Interface, _ *Store) {
			storagetesting.RunTestWatchFromZero(ctx, t, st, nil) // the watch cache keeps its own history
		},
		"WatchDispatchBookmarks": func(ctx context.Context, t *testing.T, st storage.Interface, _ *Store) {
			storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, st, true)
		},
		"WatchBookmarksCorrectRV": plain(storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion),
	} {
		t.Run(name, func(t *testing.T) {
			s := New(prefix, newPod, beginning)
			test(t.Context(), t, cached(t, s, false), s)
		})
	}
}
