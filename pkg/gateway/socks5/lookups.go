// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"cmp"
	"context"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

const (
	// maxLookups is how many destinations of one client are looked up and judged at a time. Each costs requests to the API
	// server, also one that the client may not reach: without a bound, one client would keep the lookups of all others waiting.
	maxLookups = 16
	// defaultLookupWait is how long a client waits for the end of its other lookups.
	defaultLookupWait = 5 * time.Second
)

// account is what lookups count for: a user with credentials of his own, otherwise an address.
type account struct {
	user   string
	client netip.Prefix
}

// lookups are those of all clients.
type lookups struct {
	wait time.Duration // for a place

	mu sync.Mutex
	of map[account]*places
}

// places are those of one client.
type places struct {
	*semaphore.Weighted
	users int // lookups that have a place or wait for one
}

// begin waits for a place among the lookups of a client, or returns that it is busy. The function that it returns gives the
// place back.
func (l *lookups) begin(ctx context.Context, a account) (end func(), err error) {
	p := l.enter(a)
	wait, cancel := context.WithTimeout(ctx, l.wait)
	defer cancel()
	if p.Acquire(wait, 1) == nil {
		return func() { p.Release(1); l.leave(a, p) }, nil
	}
	l.leave(a, p)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, gateway.Errorf(gateway.ReasonBusy, "wait for the answers to the others", "the proxy looks up %d destinations of the client already", maxLookups)
}

func (l *lookups) enter(a account) *places {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.of[a]
	if p == nil {
		p = &places{Weighted: semaphore.NewWeighted(maxLookups)}
		l.of[a] = p
	}
	p.users++
	return p
}

func (l *lookups) leave(a account, p *places) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(l.of, a)
	}
}

// lookUp resolves and authorizes the client's target.
func (c *conn) lookUp(ctx, present context.Context, t target) (d gateway.Destination, err error) {
	busy := c.inPlace(ctx, present, t, func(ctx context.Context) { d, err = c.find(ctx, t) })
	if gateway.ReasonOf(busy) == gateway.ReasonBusy {
		c.s.cfg.Metrics.rejected.Inc()
	}
	return d, cmp.Or(busy, err)
}

// inPlace calls ask in one of the client's places. A client that goes, which ends present, waits for none. It keeps the one that it
// has until ask returns: the requests of that go on, because other connections may share them.
func (c *conn) inPlace(ctx, present context.Context, t target, ask func(context.Context)) error {
	a := account{client: c.client()}
	if c.ofOne {
		a = account{user: t.client.GetName()}
	}
	end, err := c.s.lookups.begin(present, a)
	if err != nil {
		return err
	}
	defer end()
	ask(ctx)
	return nil
}
