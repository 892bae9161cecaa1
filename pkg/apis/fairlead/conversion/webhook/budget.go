// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"slices"
	"sync"
)

var (
	// errNoMemory means that other requests hold all memory.
	errNoMemory = errors.New("other requests hold the memory for conversions")
	// errEvicted means that the request waited for its client while another one needed memory.
	errEvicted = errors.New("the request was sent or its answer was read too slowly while others waited")
)

// budget bounds the bytes of all requests, over all connections, until they are answered. An answer is
// about as large as its request, and is not counted. If it is used up, the
// request that has waited longest for its client is evicted: one that is sent slowly keeps no other
// one waiting.
type budget struct {
	mu       sync.Mutex
	free     int64
	evicting int64         // held by requests that are evicted and have not ended yet
	clients  []*account    // of requests that wait for their clients, the longest first
	changed  chan struct{} // closed when bytes become free, or a request is evicted
}

func newBudget(bytes int64) *budget { return &budget{free: bytes, changed: make(chan struct{})} }

// account has what one request holds.
type account struct {
	*budget
	bytes   int64
	end     func() // ends the wait for the client
	evicted bool
}

// waits notes that the request waits for its client from now on; end ends that.
func (a *account) waits(end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end = end
	a.clients = append(a.clients, a)
}

// goesOn notes that the request needs nothing of its client any more. It is too late for that if
// the request is evicted.
func (a *account) goesOn() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave()
	if a.evicted {
		return errEvicted
	}
	return nil
}

// leave takes the account from the list; mu is held.
func (a *account) leave() {
	a.clients = slices.DeleteFunc(a.clients, func(c *account) bool { return c == a })
}

// hold takes more bytes, once there are some.
func (a *account) hold(ctx context.Context, bytes int64) error {
	for {
		a.mu.Lock()
		if a.evicted {
			a.mu.Unlock()
			return errEvicted
		}
		if a.free >= bytes {
			a.free -= bytes
			a.bytes += bytes
			a.mu.Unlock()
			return nil
		}
		a.evict(bytes)
		changed := a.changed
		a.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return errNoMemory
		}
	}
}

// evict ends waits of other requests for their clients, the longest first, until enough bytes
// will be free; mu is held.
func (a *account) evict(bytes int64) {
	for _, other := range slices.Clone(a.clients) {
		if a.free+a.evicting >= bytes {
			return
		}
		if other == a {
			continue
		}
		other.evicted = true
		a.evicting += other.bytes
		other.leave()
		other.end()
		a.notify()
	}
}

// notify has all requests that wait for memory look again; mu is held.
func (b *budget) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// release gives all bytes back, at the end of the request.
func (a *account) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave()
	a.free += a.bytes
	if a.evicted {
		a.evicting -= a.bytes
	}
	a.bytes = 0
	a.notify()
}
