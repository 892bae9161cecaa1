// SPDX-License-Identifier: Apache-2.0

package memstore

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

func put(t *testing.T, s *Store, name string) {
	t.Helper()
	if err := s.Put(prefix+name, &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
}

func rvOf(t *testing.T, s *Store) string {
	t.Helper()
	rv, err := s.GetCurrentResourceVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return strconv.FormatUint(rv, 10)
}

// TestEpochs: the resource versions of a store are unknown to one that was made at another time, below the watch cache
// and above it, also if the two were made within a moment, as those of replicas. A client that brings one from an earlier
// store gets 410, and a client that brings one from a later store a timeout. Neither gets a watch that shows nothing.
// It observes API-11, API-80 and API-88 of docs/requirements.md.
func TestEpochs(t *testing.T) {
	for _, apart := range []time.Duration{time.Hour, time.Second, time.Millisecond, 100 * time.Microsecond} {
		t.Run(apart.String(), func(t *testing.T) { epochs(t, apart) })
	}
}

// epochs compares three stores. Above the watch cache a timeout has no time to try again: a client that waits for it would
// see no events meanwhile, and the version is never reached.
func epochs(t *testing.T, apart time.Duration) {
	started := time.Now()
	early, now, late := New(prefix, newPod, started.Add(-apart)), New(prefix, newPod, started), New(prefix, newPod, started.Add(apart))
	for changes, s := range map[int]*Store{101: early, 100: now, 90: late} {
		for i := range changes {
			put(t, s, fmt.Sprint("pod-", i%10))
		}
	}
	for name, st := range map[string]storage.Interface{"store": now, "cached": Guard{cached(t, now, true)}} {
		t.Run(name, func(t *testing.T) {
			exact := storage.ListOptions{Predicate: storage.Everything, Recursive: true, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
			exact.ResourceVersion = rvOf(t, early)
			if err := st.GetList(t.Context(), prefix, exact, &example.PodList{}); !apierrors.IsResourceExpired(err) {
				t.Errorf("list at an earlier store's version: %v", err)
			}
			exact.ResourceVersion = rvOf(t, late)
			if err := st.GetList(t.Context(), prefix, exact, &example.PodList{}); !storage.IsTooLargeResourceVersion(err) {
				t.Errorf("list at a later store's version: %v", err)
			}
			from := storage.ListOptions{Predicate: storage.Everything, Recursive: true, ResourceVersion: rvOf(t, early)}
			w, err := st.Watch(t.Context(), prefix, from)
			if err != nil {
				t.Fatal(err)
			}
			if err := firstError(t, w); !apierrors.IsResourceExpired(err) {
				t.Errorf("watch from an earlier store's version: %v", err)
			}
			from.ResourceVersion = rvOf(t, late)
			if w, err = st.Watch(t.Context(), prefix, from); err == nil {
				err = firstError(t, w)
			}
			seconds, _ := apierrors.SuggestsClientDelay(err)
			if !storage.IsTooLargeResourceVersion(err) || name == "cached" && seconds > 0 {
				t.Errorf("watch from a later store's version: %v, and to try again after %d s", err, seconds)
			}
		})
	}
}

// TestLateEpoch: resource versions also fit into continue tokens, which have them with a sign, long after 2038.
func TestLateEpoch(t *testing.T) {
	s := New(prefix, newPod, time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC))
	for i := range 4 {
		put(t, s, fmt.Sprint("pod-", i))
	}
	list, opts := &example.PodList{}, storage.ListOptions{Predicate: storage.Everything, Recursive: true}
	opts.Predicate.Limit = 2
	if err := s.GetList(t.Context(), prefix, opts, list); err != nil || list.Continue == "" {
		t.Fatal(list, err)
	}
	first := list.ResourceVersion
	put(t, s, "pod-9")
	opts.Predicate.Limit, opts.Predicate.Continue = 0, list.Continue
	if err := s.GetList(t.Context(), prefix, opts, list); err != nil || len(list.Items) != 2 || list.ResourceVersion != first {
		t.Errorf("the second page has %d objects at %s, want 2 at %s: %v", len(list.Items), list.ResourceVersion, first, err)
	}
}

// firstError is the first event of a watch, which must be an error.
func firstError(t *testing.T, w watch.Interface) error {
	t.Helper()
	defer w.Stop()
	select {
	case e := <-w.ResultChan():
		if e.Type != watch.Error {
			return fmt.Errorf("the watch begins with %v", e)
		}
		return apierrors.FromObject(e.Object)
	case <-time.After(10 * time.Second):
		return fmt.Errorf("the watch shows nothing")
	}
}

// TestPagesUnderChurn: the pages of a list are one moment, although objects come, change and go between them.
// It observes API-20 of docs/requirements.md.
func TestPagesUnderChurn(t *testing.T) {
	s := New(prefix, newPod, time.Now())
	st := Guard{cached(t, s, true)}
	const total, size = 1000, 100
	for i := range total {
		put(t, s, fmt.Sprintf("old-%04d", i))
	}
	seen, token, version := map[string]bool{}, "", ""
	for page := 0; page == 0 || token != ""; page++ {
		list := &example.PodList{}
		opts := storage.ListOptions{Predicate: storage.Everything, Recursive: true}
		opts.Predicate.Limit, opts.Predicate.Continue = size, token
		if err := st.GetList(t.Context(), prefix, opts, list); err != nil {
			t.Fatalf("page %d: %v", page, err)
		}
		if version != "" && list.ResourceVersion != version {
			t.Fatalf("page %d is at %s, the first at %s", page, list.ResourceVersion, version)
		}
		for _, p := range list.Items {
			seen[p.Name] = true
		}
		token, version = list.Continue, list.ResourceVersion
		for i := range total / 2 {
			if err := s.Remove(fmt.Sprintf("%sold-%04d", prefix, (page*97+i*2)%total)); err != nil {
				t.Fatal(err)
			}
			put(t, s, fmt.Sprintf("new-%d-%04d", page, i))
		}
	}
	if len(seen) != total {
		t.Errorf("the pages have %d objects, want %d", len(seen), total)
	}
	for name := range seen {
		if name[:4] != "old-" {
			t.Fatalf("%s came after the first page", name)
		}
	}
}

// TestSlowWatcher: a watcher that does not read is ended, and the others see all changes.
func TestSlowWatcher(t *testing.T) {
	s := New(prefix, newPod, time.Now())
	s.patience = 300
	opts := storage.ListOptions{Predicate: storage.Everything, Recursive: true}
	slow, err := s.Watch(t.Context(), prefix, opts)
	if err != nil {
		t.Fatal(err)
	}
	quick, err := s.Watch(t.Context(), prefix, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer quick.Stop()
	for i := range 1000 {
		put(t, s, "pod")
		if e := <-quick.ResultChan(); e.Type == watch.Error {
			t.Fatalf("change %d: %v", i, e)
		}
	}
	for e := range slow.ResultChan() {
		if e.Type == watch.Error {
			if err := apierrors.FromObject(e.Object); !apierrors.IsResourceExpired(err) {
				t.Errorf("the slow watcher ends with %v", err)
			}
			return
		}
	}
	t.Error("the slow watcher ended without an error")
}
