// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"testing"
	"testing/synctest"
	"time"

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
				r := newRelay(in, "tests")
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

// TestRelayStops: a client that goes away ends the watch of the cache.
func TestRelayStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := watch.NewFakeWithChanSize(0, false)
		r := newRelay(in, "tests")
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
