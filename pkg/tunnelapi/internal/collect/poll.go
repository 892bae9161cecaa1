// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"sync"
	"time"

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

// poll asks all servers. A server that hangs delays the round by no more than the timeout. It is asked again when its
// request has ended.
func (c *Collector) poll(ctx context.Context) {
	found, err := c.cfg.Finder.Find(ctx)
	now := c.cfg.Now()
	c.mu.Lock()
	if err != nil && (c.found == nil || c.found.Error() != err.Error()) {
		c.cfg.Logger.Error(err, "Cannot find konnectivity-servers, keeping those that are known")
	}
	c.found = err
	for address, asker := range found {
		s := c.seen[address]
		if s == nil {
			s = &server{address: address}
			c.seen[address] = s
		}
		s.asker, s.known = asker, now
	}
	for address, s := range c.seen {
		if err == nil && now.Sub(s.known) > c.cfg.KeepGone {
			delete(c.seen, address)
		}
	}
	var ask []*server
	var askers []Asker
	for _, s := range c.seen {
		if !s.asking {
			s.asking = true
			ask, askers = append(ask, s), append(askers, s.asker)
		}
	}
	c.mu.Unlock()
	var wg sync.WaitGroup
	for i, s := range ask {
		wg.Go(func() { c.ask(ctx, s, askers[i]) })
	}
	wg.Wait()
}

func (c *Collector) ask(ctx context.Context, s *server, asker Asker) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	st, err := asker.State(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	s.asking = false
	if err != nil && (s.err == nil || s.err.Error() != err.Error()) {
		c.cfg.Logger.Error(err, "The konnectivity-server does not show its state", "address", s.address)
	}
	s.err = err
	if err == nil {
		s.state, s.at = st, c.cfg.Now()
	}
}

// fresh tells whether the last answer counts as true.
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
