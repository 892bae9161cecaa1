// SPDX-License-Identifier: Apache-2.0

package failoverbarrier

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

const (
	// pageTimeout bounds one page. The whole list has no limit.
	pageTimeout = 30 * time.Second
	// fresh is the least pause between two lists: pods that are deleted meanwhile never appear.
	fresh = time.Second
	// later is the pause after an answer that was an error.
	later = 500 * time.Millisecond
)

// catchUp is one period in which the barrier is closed, from its first list until it opens. It lists pods in the
// background. Scheduling cycles read its results, and block the scheduler only for their timeout.
type catchUp struct {
	bound  lister
	led    func(ctx context.Context) error
	began  time.Time
	cancel context.CancelFunc
	// first is closed when the first list is complete.
	first chan struct{}

	mu sync.Mutex
	// missing are the pods of the first list that no snapshot has had; those that a later list lacks are gone.
	missing map[types.UID]string
	// total is the length of the first list, seen that of the one under way.
	total, seen int
	listed      time.Time
	err         error
}

func startCatchUp(ctx context.Context, bound lister, led func(ctx context.Context) error) *catchUp {
	ctx, cancel := context.WithCancel(ctx)
	c := &catchUp{bound: bound, led: led, began: time.Now(), cancel: cancel, first: make(chan struct{})}
	go c.run(ctx)
	return c
}

func (c *catchUp) run(ctx context.Context) {
	if !c.try(ctx, c.led) {
		return
	}
	for {
		begin := time.Now()
		list, ok := c.list(ctx)
		if !ok {
			return
		}
		c.take(list)
		// After a long list, pause as long as the list took, to spare the API server.
		if !pause(ctx, max(fresh, time.Since(begin))) {
			return
		}
	}
}

// list goes through all pages, as often as it takes, and returns false when ctx ends.
func (c *catchUp) list(ctx context.Context) (map[types.UID]string, bool) {
	all, token := map[types.UID]string{}, ""
	for {
		ok := c.try(ctx, func(ctx context.Context) error {
			part, next, err := c.bound.page(ctx, token)
			token = next
			if err != nil {
				if token == "" {
					clear(all)
				}
				return fmt.Errorf("list bound pods: %w", err)
			}
			maps.Copy(all, part)
			return nil
		})
		if !ok {
			return nil, false
		}
		c.mu.Lock()
		c.seen = len(all)
		c.mu.Unlock()
		if token == "" {
			return all, true
		}
	}
}

// try repeats a question until it is answered, and returns false when ctx ends.
func (c *catchUp) try(ctx context.Context, ask func(ctx context.Context) error) bool {
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, pageTimeout)
		err := ask(asking)
		cancel()
		c.mu.Lock()
		c.err = err
		c.mu.Unlock()
		if err == nil {
			return true
		}
		klog.FromContext(ctx).Error(err, "Still blocking binding, will ask again", "plugin", Name)
		if !pause(ctx, later) {
			return false
		}
	}
	return false
}

// take records a complete list. The barrier does not wait for pods that other schedulers have bound since the
// first list.
func (c *catchUp) take(list map[types.UID]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed = time.Now()
	if c.missing != nil {
		maps.DeleteFunc(c.missing, func(uid types.UID, _ string) bool { _, ok := list[uid]; return !ok })
		return
	}
	c.missing, c.total = list, len(list)
	close(c.first)
}

// complete waits for the first list and says whether there is one.
func (c *catchUp) complete(ctx context.Context) bool {
	select {
	case <-c.first:
		return true
	case <-ctx.Done():
		return false
	}
}

// found removes missing pods for which is returns true, and returns how many are left.
func (c *catchUp) found(is func(uid types.UID, key string) bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.missing, is)
	return len(c.missing)
}

// all says whether something holds for each pod that is missing.
func (c *catchUp) all(is func(uid types.UID, key string) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid, key := range c.missing {
		if !is(uid, key) {
			return false
		}
	}
	return true
}

// why says what the barrier waits for.
func (c *catchUp) why() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return c.err.Error()
	case c.missing == nil:
		return fmt.Sprintf("the list of bound pods is not complete yet, %d so far", c.seen)
	}
	return fmt.Sprintf("%d of %d bound pods are not known yet", len(c.missing), c.total)
}

// age is how old the last complete list is.
func (c *catchUp) age() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.listed)
}

// pause returns false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
