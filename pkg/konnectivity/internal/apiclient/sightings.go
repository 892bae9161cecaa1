// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"fmt"
	"time"

	"github.com/go-logr/logr"
)

// sighting is a Lease and when this process saw it change.
type sighting struct {
	lease   Lease
	changed time.Time // by the clock of this process; zero if no change was seen
	seen    time.Time // when it was seen first as it is
	odd     bool      // the holder's clock is off, which was told
}

// Sightings judge Leases by when this process saw them change, as elections do: the times in a
// Lease are those of its holder's clock, which may be wrong. Not safe for concurrent use.
type Sightings struct {
	// OnOddClock gets a Lease whose times are off by more than its duration, once until they
	// are right again: how far the holder's clock is ahead, which is negative if it is
	// behind. May be nil.
	OnOddClock func(l Lease, ahead time.Duration)

	all map[string]*sighting
}

// Set takes a list of all Leases.
func (s *Sightings) Set(leases []Lease, now time.Time) {
	old := s.all
	s.all = make(map[string]*sighting, len(leases))
	for _, l := range leases {
		if was := old[l.Metadata.Name]; was != nil {
			s.all[l.Metadata.Name] = was
		} else if old == nil {
			s.all[l.Metadata.Name] = &sighting{lease: l, seen: now}
			continue
		}
		s.Add(l, now)
	}
}

// Add takes a Lease that is new, or may have changed.
func (s *Sightings) Add(l Lease, now time.Time) {
	if s.all == nil {
		s.all = map[string]*sighting{}
	}
	g := s.all[l.Metadata.Name]
	if g == nil {
		g = &sighting{}
		s.all[l.Metadata.Name] = g
	} else if same(&g.lease, &l) {
		g.lease = l
		return
	}
	g.lease, g.changed, g.seen = l, now, now
	at, d := l.renewed(), l.duration()
	if at.IsZero() || d <= 0 {
		return
	}
	ahead := at.Sub(now)
	odd := ahead.Abs() > d
	if odd && !g.odd && s.OnOddClock != nil {
		s.OnOddClock(l, ahead)
	}
	g.odd = odd
}

// same reports whether the holder has not renewed a Lease in between. Labels and the like may differ.
func same(a, b *Lease) bool {
	return a.renewed().Equal(b.renewed()) && a.duration() == b.duration() && a.Metadata.UID == b.Metadata.UID
}

// Delete forgets a Lease.
func (s *Sightings) Delete(name string) { delete(s.all, name) }

// Valid is the number of Leases whose holders renew them. One that has not changed yet may be
// that of a server that is gone: until it changes, its own times have to say that it is valid,
// and it is for no longer than its duration.
func (s *Sightings) Valid(now time.Time) (n int) {
	for _, g := range s.all {
		if g.valid(now) {
			n++
		}
	}
	return n
}

func (g *sighting) valid(now time.Time) bool {
	if g.lease.renewed().IsZero() || now.Sub(g.seen) >= g.lease.duration() {
		return false
	}
	return !g.changed.IsZero() || g.lease.valid(now)
}

// Expired are the Leases that have not changed for as long as they are valid.
func (s *Sightings) Expired(now time.Time) (out []Lease) {
	for _, g := range s.all {
		if now.Sub(g.seen) >= g.lease.duration() {
			out = append(out, g.lease)
		}
	}
	return out
}

// LogOddClock returns an OnOddClock that logs.
func LogOddClock(logger logr.Logger) func(l Lease, ahead time.Duration) {
	return func(l Lease, ahead time.Duration) {
		which := "ahead"
		if ahead < 0 {
			which = "behind"
		}
		holder := ""
		if h := l.Spec.HolderIdentity; h != nil {
			holder = fmt.Sprintf("%.100q", *h)
		}
		logger.Info("The clock of the server that holds a Lease, or the clock here, is wrong: synchronize the clocks of both nodes", "lease", l.Metadata.Name, "holder", holder,
			which, ahead.Abs().Round(time.Second))
	}
}
