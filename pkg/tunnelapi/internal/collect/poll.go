// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/neterr"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

var errNotReady = errors.New("the konnectivity-servers have not been asked yet")

// server is what is known of the server at an address.
type server struct {
	address string
	asker   Asker
	state   *state.State // the last answer, nil if there was none
	at      time.Time    // when it came
	err     error        // of the last request, nil if it was answered
	known   time.Time    // when the address was last in use
	asking  bool         // a request has not ended
}

// poll looks for servers and asks them. Once the collector is ready, what hangs delays the round by a part of the interval
// only. It is asked again when its request has ended.
func (c *Collector) poll(ctx context.Context) {
	soon := ctx
	if c.Ready() == nil {
		limited, cancel := context.WithTimeout(ctx, c.cfg.Interval/4)
		defer cancel()
		soon = limited
	}
	await(soon, c.find(ctx))
	var over atomic.Bool
	await(soon, c.askAll(ctx, &over))
	over.Store(true)
}

func await(ctx context.Context, done <-chan struct{}) {
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// find looks for servers, unless it does so already. The channel is closed when it has ended.
func (c *Collector) find(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finding {
		close(done)
		return done
	}
	c.finding = true
	c.background.Go(func() {
		defer close(done)
		found, err := c.cfg.Finder.Find(ctx)
		c.known(found, neterr.Steady(err))
	})
	return done
}

// known notes the servers that were found.
func (c *Collector) known(found map[string]Asker, err error) {
	now := c.cfg.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && (c.found == nil || c.found.Error() != err.Error()) {
		c.cfg.Logger.Error(err, "Cannot find konnectivity-servers, keeping those that are known")
	}
	c.finding, c.found = false, err
	for address, asker := range found {
		s := c.seen[address]
		if s == nil {
			s = &server{address: address}
			c.seen[address] = s
		}
		s.asker, s.known = asker, now
	}
	for address, s := range c.seen {
		if now.Sub(s.known) > c.cfg.KeepGone {
			delete(c.seen, address)
		}
	}
}

// askAll asks the servers of which no request is on its way. The channel is closed when all have answered, and answers that
// come when the round is over are announced.
func (c *Collector) askAll(ctx context.Context, over *atomic.Bool) <-chan struct{} {
	var all sync.WaitGroup
	c.mu.Lock()
	for _, s := range c.seen {
		if s.asking {
			continue
		}
		s.asking = true
		asker := s.asker
		all.Add(1)
		c.background.Go(func() {
			defer all.Done()
			c.ask(ctx, s, asker)
			if over.Load() {
				select {
				case c.late <- struct{}{}:
				default: // it was announced already
				}
			}
		})
	}
	c.mu.Unlock()
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	return done
}

func (c *Collector) ask(ctx context.Context, s *server, asker Asker) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	st, err := asker.State(ctx)
	err = neterr.Steady(err)
	now := c.cfg.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	s.asking = false
	if err != nil && (s.err == nil || s.err.Error() != err.Error()) {
		c.cfg.Logger.Error(err, "The konnectivity-server does not show its state", "address", s.address)
	}
	s.err = err
	if err == nil {
		s.state, s.at = st, now
	}
}

// fresh reports whether the last answer counts as true.
func (c *Collector) fresh(s *server, now time.Time) bool {
	return s.state != nil && now.Sub(s.at) <= c.cfg.StaleAfter
}

// latest returns copies of the servers that have answered, by their IDs, and of those that have not. A server that answers
// at several addresses is taken once. mu is held.
func (c *Collector) latest() (byID map[string]*server, silent []*server) {
	byID = map[string]*server{}
	for _, known := range c.seen {
		s := new(server)
		*s = *known
		if s.state == nil {
			silent = append(silent, s)
			continue
		}
		id := s.state.Server.ID
		if other := byID[id]; other == nil || s.at.After(other.at) || s.at.Equal(other.at) && s.address < other.address {
			byID[id] = s
		}
	}
	return byID, silent
}
