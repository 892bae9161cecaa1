// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
)

// TestWatchesAreBounded: above the limit, which is for all resources together, a watch is refused with the time to try again.
// The place of a watch that has ended is free, also of one that could not begin.
func TestWatchesAreBounded(t *testing.T) {
	g, err := New(&fixed{}, time.Now(), 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Agents.Destroy()
	defer g.Servers.Destroy()
	for begin := time.Now(); g.Agents.ReadinessCheck() != nil || g.Servers.ReadinessCheck() != nil; time.Sleep(time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatal("the watch caches are not ready")
		}
	}
	for range 3 {
		if _, err := g.Agents.Watch(t.Context(), &metainternalversion.ListOptions{ResourceVersion: "bad"}); err == nil || apierrors.IsTooManyRequests(err) {
			t.Fatalf("a watch from no version: %v", err)
		}
	}
	first, err := g.Agents.Watch(t.Context(), &metainternalversion.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := g.Servers.Watch(t.Context(), &metainternalversion.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Stop()
	_, err = g.Agents.Watch(t.Context(), &metainternalversion.ListOptions{})
	if seconds, _ := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || seconds == 0 {
		t.Errorf("a third watch: %v, and to try again after %d s", err, seconds)
	}
	first.Stop()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		third, err := g.Servers.Watch(t.Context(), &metainternalversion.ListOptions{})
		if err == nil {
			third.Stop()
			return
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("after the end of a watch: %v", err)
		}
	}
}

// TestWatchesOfUser: one user cannot take the places of all others, and the places that it returns are free for it.
func TestWatchesOfUser(t *testing.T) {
	p := &places{most: 4, perUser: 2}
	as := func(name string) context.Context {
		return request.WithUser(t.Context(), &user.DefaultInfo{Name: name})
	}
	take := func(name string) func() {
		give, err := p.take(as(name))
		if err != nil {
			t.Fatalf("a watch of %s: %v", name, err)
		}
		return give
	}
	first := take("a")
	take("a")
	_, err := p.take(as("a"))
	if seconds, _ := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || seconds == 0 {
		t.Errorf("a third watch of a user: %v, and to try again after %d s", err, seconds)
	}
	take("b")
	first()
	take("a")
}

// TestBurst: when far more objects change at once than upstream keeps room for, each of many watches gets all events, also
// those whose clients begin to read only afterwards.
func TestBurst(t *testing.T) {
	const watches, objects = 200, 1000
	w, err := newWatched(agents, &fixed{}, Codecs.LegacyCodec(v1alpha1.SchemeGroupVersion), time.Now(), &places{most: watches, perUser: watches})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Destroy()
	for begin := time.Now(); w.ReadinessCheck() != nil; time.Sleep(time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatal(w.ReadinessCheck())
		}
	}
	all := make([]interface {
		Stop()
	}, 0, watches)
	var channels []func() int
	for range watches {
		in, err := w.Watch(t.Context(), &metainternalversion.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, in)
		channels = append(channels, func() (n int) {
			limit := time.After(time.Minute)
			for n < objects {
				select {
				case _, ok := <-in.ResultChan():
					if !ok {
						return n
					}
					n++
				case <-limit:
					return n
				}
			}
			return n
		})
	}
	for i := range objects {
		name := fmt.Sprintf("a%04d", i)
		if err := w.Put(w.Prefix()+name, &v1alpha1.TunnelAgent{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	for i, count := range channels {
		if n := count(); n != objects {
			t.Fatalf("watch %d gets %d events of %d", i, n, objects)
		}
		all[i].Stop()
	}
}
