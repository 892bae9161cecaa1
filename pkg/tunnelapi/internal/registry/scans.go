// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/internal/collect"
)

// scans bounds what lists ask the servers for: few scans run at a time, and one for each selector. This is not package
// singleflight, because a scan ends when all who wait for it have gone.
type scans struct {
	places chan struct{}

	mu    sync.Mutex
	going map[string]*scan
}

// scan is one that waits for a place, or runs.
type scan struct {
	cancel  context.CancelFunc
	waiting int // requests; guarded by scans.mu
	done    chan struct{}
	s       *snapshot
	err     error
}

func newScans() *scans {
	return &scans{places: make(chan struct{}, collect.MaxScans), going: map[string]*scan{}}
}

// do returns what take does for the key, or what it does already for another request.
func (c *scans) do(ctx context.Context, key string, take func(context.Context) (*snapshot, error)) (*snapshot, error) {
	s := c.join(ctx, key, take)
	select {
	case <-s.done:
		return s.s, s.err
	case <-ctx.Done():
		c.leave(key, s)
		return nil, gaveUp(ctx)
	}
}

func (c *scans) join(ctx context.Context, key string, take func(context.Context) (*snapshot, error)) *scan {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.going[key]
	if s == nil {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		s = &scan{cancel: cancel, done: make(chan struct{})}
		c.going[key] = s
		go func() {
			defer close(s.done)
			defer cancel()
			s.s, s.err = c.inTurn(ctx, take)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.forgetLocked(key, s)
		}()
	}
	s.waiting++
	return s
}

// leave gives up a scan if no other request waits for it. One that comes later begins another.
func (c *scans) leave(key string, s *scan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.waiting--; s.waiting == 0 {
		s.cancel()
		c.forgetLocked(key, s)
	}
}

func (c *scans) forgetLocked(key string, s *scan) {
	if c.going[key] == s {
		delete(c.going, key)
	}
}

func (c *scans) inTurn(ctx context.Context, take func(context.Context) (*snapshot, error)) (*snapshot, error) {
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
		if ctx.Err() != nil {
			return nil, gaveUp(ctx)
		}
		return take(ctx)
	case <-ctx.Done():
		return nil, gaveUp(ctx)
	}
}

func gaveUp(ctx context.Context) error {
	return apierrors.NewTimeoutError(fmt.Sprintf("list connections: %v", ctx.Err()), 1)
}
