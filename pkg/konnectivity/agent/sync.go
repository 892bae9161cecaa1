// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// slowAfter is how long an attempt at an address keeps the search from going on to
	// the next address.
	slowAfter = time.Second
	// maxTries limits the attempts in progress at addresses that do not answer. The
	// agent also tries addresses at which a link was lost beyond that limit.
	maxTries = 16
	// maxTriesHere is the same limit for one address.
	maxTriesHere = 4
	// stuckAfter is the age of an attempt at which the address of a lost link is tried
	// concurrently: the address may lead to several servers, and one of them may not
	// answer. It is long, so that agents that all reconnect to one server do not ask
	// it twice.
	stuckAfter = 5 * time.Second
	// lostAgain is how long a lost link is looked for again if enough servers are connected.
	lostAgain = time.Minute
)

// search looks for servers. One goroutine owns it. Other goroutines wait for the
// network, so that an address that does not answer does not delay others.
type search struct {
	a        *Agent
	open     func(ctx context.Context, addr, further string) error // see Agent.open
	order    []string                                              // the addresses, as the last look at the name found them
	routes   map[string]*route                                     // to an address
	further  map[string]*route                                     // to a server that wants more links
	looking  bool
	lookAt   time.Time // not before
	name     resolution
	named    []string            // the addresses that the name has
	held     map[string][]string // addresses that answer as one of these servers, which are connected
	warnAt   time.Time           // not before; zero while no server is missing
	saidMore bool                // see noteMoreAddresses
	running  int                 // tries and looks under way
	over     chan func()         // what is to be done when one has ended
	due      time.Time           // of the next step
}

// route is a place to connect to.
type route struct {
	tries    int           // under way
	old      int           // of these, tries that began before a link was lost
	since    time.Time     // when the last one began
	next     time.Time     // not before
	wait     time.Duration // after the next failure
	lost     bool          // a link was here and has not come back
	lostAt   time.Time
	hopeless bool // the last try found no server that was missing
	alone    bool // the next try is for one server; further links only
}

// search returns a search that connects by open.
func (a *Agent) search(open func(ctx context.Context, addr, further string) error) *search {
	return &search{a: a, open: open, routes: map[string]*route{}, further: map[string]*route{}, held: map[string][]string{}, over: make(chan func())}
}

// until connects to servers until ctx ends.
func (s *search) until(ctx context.Context) {
	for ctx.Err() == nil {
		s.step(ctx)
		s.rest(ctx)
	}
	for s.running > 0 {
		(<-s.over)()
	}
}

// step starts all that is due.
func (s *search) step(ctx context.Context) {
	s.due = time.Now().Add(jitter(s.a.cfg.SyncInterval))
	if s.a.draining.Load() {
		return
	}
	missing := s.a.missing()
	s.watchMissing(missing)
	if s.a.cfg.SyncForever {
		missing = math.MaxInt
	}
	s.tryNew(ctx, missing)
	s.tryFurther(ctx)
}

// rest waits until there may be something to do.
func (s *search) rest(ctx context.Context) {
	t := time.NewTimer(time.Until(s.due))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case f := <-s.over:
		f()
	case <-s.a.changed:
		s.noteLost()
	}
}

// run has f wait for the network, and what it returns done by the search's goroutine.
func (s *search) run(f func() func()) {
	s.running++
	go func() {
		done := f()
		s.over <- func() {
			s.running--
			done()
		}
	}()
}

// reached reports whether it is time. If not, the search rests no longer than until then.
func (s *search) reached(t time.Time) bool {
	if !time.Now().Before(t) {
		return true
	}
	if t.Before(s.due) {
		s.due = t
	}
	return false
}

// noteLost has the addresses of links that were lost, or soon will be, tried again
// soon, after a random time that keeps agents of a server that went away from all
// coming back in the same moment.
func (s *search) noteLost() {
	s.a.mu.Lock()
	lost := s.a.lost
	s.a.lost = nil
	s.a.mu.Unlock()
	for _, addr := range lost {
		if !slices.Contains(s.order, addr) {
			s.order = append(s.order, addr)
		}
		r := s.route(s.routes, addr)
		r.lost, r.hopeless, r.wait, r.lostAt = true, false, s.a.cfg.SyncInterval, time.Now()
		r.old = r.tries
		r.next = r.lostAt.Add(time.Duration(rand.Int64N(int64(s.a.cfg.SyncInterval)/2 + 1)))
	}
}

func (s *search) route(in map[string]*route, key string) *route {
	if in[key] == nil {
		in[key] = &route{wait: s.a.cfg.SyncInterval}
	}
	return in[key]
}

// look resolves the servers' name again, unless that was done a short time ago.
func (s *search) look(ctx context.Context) {
	if s.looking || !s.reached(s.lookAt) {
		return
	}
	s.looking = true
	s.run(func() func() {
		found, err := s.a.addresses(ctx)
		return func() {
			s.looking = false
			s.lookAt = time.Now().Add(s.name.pause(err, &s.a.cfg))
			if err == nil {
				s.order, s.named = found, found
			} else if len(s.order) == 0 && ctx.Err() == nil {
				s.a.failed(s.a.cfg.Address, err)
			}
			maps.DeleteFunc(s.routes, func(addr string, r *route) bool { return r.tries == 0 && !slices.Contains(s.order, addr) })
		}
	})
}

// tryNew tries addresses for missing servers. It goes from one to the next once the
// first has answered or takes long, so that two that lead to one server are not both
// connected. Only where a link was lost is tried whatever is under way, and for a time if
// none is missing, too: the server that is gone may be the one that told of itself. An
// address that still has a link is not: see tryFurther.
func (s *search) tryNew(ctx context.Context, missing int) {
	if missing > 0 && len(s.order) == 0 {
		s.look(ctx)
	}
	used := s.a.usedAddresses()
	spare := slices.ContainsFunc(s.order, func(addr string) bool { return !used[addr] })
	under, pending := s.underWay()
	for _, addr := range s.candidates(used, missing) {
		r := s.routes[addr]
		if missing <= 0 && (!r.lost || used[addr] || time.Since(r.lostAt) > lostAgain) {
			continue
		}
		if !r.lost && (pending || under >= maxTries) || !s.mayTry(r) {
			continue
		}
		s.look(ctx)
		s.try(ctx, addr, r, used[addr] && spare)
		pending = true
		under++
	}
}

// underWay is the number of tries, and whether one of them has begun a short time ago.
func (s *search) underWay() (n int, pending bool) {
	for _, r := range s.routes {
		n += r.tries
		if r.tries > 0 && !s.reached(r.since.Add(slowAfter)) {
			pending = true
		}
	}
	return n, pending
}

// candidates are the addresses without a link and, if there are not enough of these,
// behind them the others: they may lead to several servers.
func (s *search) candidates(used map[string]bool, missing int) (first []string) {
	var last []string
	hope := 0
	for _, addr := range s.order {
		r := s.route(s.routes, addr)
		if used[addr] && !r.lost {
			last = append(last, addr)
			continue
		}
		first = append(first, addr)
		if !r.hopeless {
			hope++
		}
	}
	if missing > hope {
		return append(first, last...)
	}
	return first
}

// mayTry reports whether an address may be tried: where a link was lost, whatever began
// before that.
func (s *search) mayTry(r *route) bool {
	switch n := r.tries - r.old; {
	case r.tries >= maxTriesHere, n > 1, n == 1 && !r.lost, n == 1 && !s.reached(r.since.Add(stuckAfter)):
		return false
	}
	return s.reached(r.next)
}

// try connects to an address. With seldom it is tried less and less often while it
// leads to servers that are connected.
func (s *search) try(ctx context.Context, addr string, r *route, seldom bool) {
	began := s.begin(r)
	s.run(func() func() {
		err := s.open(ctx, addr, "")
		return func() {
			again := errors.Is(err, errDuplicate)
			var held *duplicateError
			if errors.As(err, &held) {
				s.noteAnswer(addr, held.ids)
			} else {
				s.noteAnswer(addr, nil)
			}
			r.lost = r.lost && err != nil
			if r.lostAt.After(began) {
				r.tries-- // the next one is planned already
				r.old--
			} else {
				r.hopeless = err != nil
				s.end(r, err == nil || again && !seldom)
			}
			if err != nil && !again && ctx.Err() == nil {
				s.a.failed(addr, err)
			}
		}
	})
}

func (s *search) begin(r *route) time.Time {
	r.tries++
	r.since = time.Now()
	r.next = r.since.Add(jitter(r.wait))
	return r.since
}

// end plans the next try: soon after a good one, later and later after others.
func (s *search) end(r *route, good bool) {
	r.tries--
	if good {
		r.wait = s.a.cfg.SyncInterval
	}
	r.next = time.Now().Add(jitter(r.wait))
	if !good {
		r.wait = min(r.wait*3/2, s.a.cfg.SyncIntervalCap)
	}
}
