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

// TestRelayGathers: events that come together can be read together, and soon.
func TestRelayGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := watch.NewFakeWithChanSize(0, false)
		r := newRelay(in, "tests", 0)
		go r.run()
		for range piece {
			in.Modify(&v1alpha1.TunnelAgent{})
			synctest.Wait()
			if n := len(r.ResultChan()); n != 0 {
				t.Fatalf("%d events can be read before the others have come", n)
			}
		}
		time.Sleep(gather)
		synctest.Wait()
		if n := len(r.ResultChan()); n != piece {
			t.Errorf("%d events of %d can be read together", n, piece)
		}
		in.Stop()
	})
}

// TestRelayWithoutEvents: a client that reads nothing loses its watch in time, also if no further event comes, and if the watch
// of the cache has ended. One that reads slowly keeps it.
func TestRelayWithoutEvents(t *testing.T) {
	for name, c := range map[string]struct{ ends, reads, dropped bool }{
		"silent": {dropped: true}, "silent, and the cache's watch ends": {ends: true, dropped: true},
		"slow": {reads: true}, "slow, and the cache's watch ends": {ends: true, reads: true},
		"slow, then silent": {reads: true, dropped: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := watch.NewFakeWithChanSize(0, false)
				r := newRelay(in, "tests", 0)
				over := make(chan struct{})
				go func() { defer close(over); r.run() }()
				for range 2 * piece { // half of them wait in the channel
					in.Modify(&v1alpha1.TunnelAgent{})
				}
				if c.ends {
					in.Stop()
				}
				if c.reads {
					for range 4 {
						time.Sleep(maxStalled - time.Second)
						<-r.ResultChan()
					}
				}
				wait := maxStalled - time.Second
				if c.dropped {
					wait = maxStalled + time.Second
				}
				time.Sleep(wait)
				synctest.Wait()
				select {
				case <-over:
					if !c.dropped {
						t.Error("the watch is over")
					}
				default:
					if c.dropped {
						t.Error("the client keeps its watch")
					}
				}
				r.Stop()
			})
		})
	}
}

// TestEndedRelayDelaysNoWriter: once the watch of the cache has ended, changes do not wait for the relay to have them.
func TestEndedRelayDelaysNoWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := watch.NewFakeWithChanSize(0, false)
		var p pacer
		r := p.start(in, "tests", 1, true, func() {})
		defer r.Stop()
		for range 2 * piece { // more than the channel has room for: the relay stays
			in.Modify(&v1alpha1.TunnelAgent{})
		}
		synctest.Wait()
		if p.passed(2) {
			t.Error("the relay counts as one that has what it has not got")
		}
		in.Stop()
		synctest.Wait()
		select {
		case _, ok := <-r.ResultChan():
			if !ok {
				t.Fatal("the relay has ended")
			}
		default:
		}
		if !p.passed(2) {
			t.Error("changes wait for a relay that gets no more events")
		}
	})
}
