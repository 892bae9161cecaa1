// SPDX-License-Identifier: Apache-2.0

package memstore

import (
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// TestStopCache: a watch cache stops in bounded time, also while more events wait than it has room for.
func TestStopCache(t *testing.T) {
	for range 5 {
		s := New(prefix, newPod, beginning)
		d, c := newCache(t, s, false)
		for range 300 { // so that the cache takes longer for an event than the store
			w, err := d.Watch(t.Context(), prefix+"default/", storage.ListOptions{ResourceVersion: "0", Recursive: true, Predicate: storage.Everything})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
		}
		for i := range 5000 {
			name := "p" + strconv.Itoa(i)
			if err := s.Put(prefix+"default/"+name, &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}); err != nil {
				t.Fatal(err)
			}
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			StopCache(d, c)
		}()
		select {
		case <-stopped:
		case <-time.After(10 * stopLimit):
			t.Fatal("the watch cache does not stop")
		}
	}
}
