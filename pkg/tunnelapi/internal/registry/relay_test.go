// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
)

// TestRelay: a client that reads late gets all events in their order, and the cache never waits for it. One that reads
// nothing for long, or lets too many events wait, loses its watch, and the watch of the cache ends with it.
func TestRelay(t *testing.T) {
	const events = 500
	for name, c := range map[string]struct {
		limit   int
		silence time.Duration
		all     bool
	}{
		"late":          {maxWaiting, maxStalled - time.Second, true},
		"silent":        {maxWaiting, maxStalled + time.Second, false},
		"too many wait": {100, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := watch.NewFakeWithChanSize(0, false)
				r := newRelay(in, "tests", 0)
				r.limit = c.limit
				go r.run()
				sent := 0
				send := func() {
					for range events {
						if in.IsStopped() {
							return
						}
						in.Modify(&v1alpha1.TunnelAgent{Status: v1alpha1.TunnelAgentStatus{Version: string(rune(sent))}})
						sent++
						synctest.Wait()
					}
				}
				send()
				time.Sleep(c.silence)
				send()
				if c.all != !in.IsStopped() {
					t.Fatalf("after %d events the watch of the cache is stopped: %v", sent, in.IsStopped())
				}
				in.Stop()
				got := 0
				for e := range r.ResultChan() {
					if v := e.Object.(*v1alpha1.TunnelAgent).Status.Version; v != string(rune(got)) {
						t.Fatalf("event %d is %q", got, v)
					}
					got++
				}
				if c.all && got != 2*events {
					t.Errorf("%d events of %d arrive", got, 2*events)
				}
			})
		})
	}
}

// TestRelayOfList: the list that a watch begins with may be longer than what may wait, and the changes after it may not.
func TestRelayOfList(t *testing.T) {
	const objects, limit = 500, 10
	at := func(rv int) *v1alpha1.TunnelAgent {
		return &v1alpha1.TunnelAgent{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(rv)}}
	}
	for name, changes := range map[string]int{"few changes": limit / 2, "too many changes": 3 * limit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := watch.NewFakeWithChanSize(0, false)
				r := newRelay(in, "tests", objects)
				r.limit = limit
				go r.run()
				for rv := 1; rv <= objects+changes && !in.IsStopped(); rv++ {
					in.Add(at(rv))
					synctest.Wait()
				}
				if keeps := changes <= limit; keeps == in.IsStopped() {
					t.Fatalf("with %d changes the watch of the cache is stopped: %v", changes, in.IsStopped())
				}
				in.Stop()
				got := 0
				for range r.ResultChan() {
					got++
				}
				if changes <= limit && got != objects+changes {
					t.Errorf("%d events of %d arrive", got, objects+changes)
				}
			})
		})
	}
}

// TestRelayStops: a client that goes away ends the watch of the cache.
func TestRelayStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := watch.NewFakeWithChanSize(0, false)
		r := newRelay(in, "tests", 0)
		go r.run()
		in.Modify(&v1alpha1.TunnelAgent{})
		r.Stop()
		r.Stop()
		synctest.Wait()
		if !in.IsStopped() {
			t.Error("the watch of the cache goes on")
		}
	})
}
