// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"testing"
	"time"
)

const leaseSeconds = 30

// renewedAt is a Lease that its holder renewed at a time by the holder's clock.
func renewedAt(name string, at time.Time) Lease {
	seconds := int32(leaseSeconds)
	return Lease{Metadata: Meta{Name: name}, Spec: LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &MicroTime{at}}}
}

// TestSightings: whatever the clocks of holders show, a Lease is valid while it is renewed and for its duration after that, and no other is
// swept. One that is found at the start is judged by its own times until it changes.
func TestSightings(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, off := range []time.Duration{0, -45 * time.Second, -time.Hour, 20 * time.Second, time.Hour} {
		var odd []time.Duration
		s := Sightings{OnOddClock: func(_ Lease, ahead time.Duration) { odd = append(odd, ahead) }}
		s.Set(nil, start)
		now := start
		for range 20 {
			s.Set([]Lease{renewedAt("a", now.Add(off))}, now)
			for _, at := range []time.Duration{0, 14 * time.Second} {
				if s.Valid(now.Add(at)) != 1 || len(s.Expired(now.Add(at))) != 0 {
					t.Errorf("clock off by %v: the Lease of a live server is not valid %v after its renewal", off, at)
				}
			}
			s.Set([]Lease{renewedAt("a", now.Add(off))}, now.Add(10*time.Second)) // a look between renewals
			now = now.Add(15 * time.Second)
		}
		last := now.Add(-15 * time.Second)
		if at := last.Add(leaseSeconds * time.Second); s.Valid(at.Add(-1)) != 1 || s.Valid(at) != 0 || len(s.Expired(at.Add(-1))) != 0 || len(s.Expired(at)) != 1 {
			t.Errorf("clock off by %v: the Lease is not valid for its duration after the last renewal", off)
		}
		if told := off.Abs() > leaseSeconds*time.Second; told != (len(odd) == 1) || told && odd[0] != off {
			t.Errorf("clock off by %v: reported as %v", off, odd)
		}
	}
}

// TestFirstSighting: what is there at the start, live or not, is swept and counted only after it was looked at for long enough.
func TestFirstSighting(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for off, valid := range map[time.Duration]int{0: 1, -45 * time.Second: 0, -time.Hour: 0, time.Hour: 1} {
		var s Sightings
		l := renewedAt("a", now.Add(off))
		s.Set([]Lease{l}, now)
		if n := s.Valid(now); n != valid || len(s.Expired(now)) != 0 {
			t.Errorf("clock off by %v: %d valid at the start, want %d", off, n, valid)
		}
		s.Set([]Lease{l}, now.Add(29*time.Second))
		if end := now.Add(leaseSeconds * time.Second); s.Valid(end) != 0 || len(s.Expired(end.Add(-1))) != 0 || len(s.Expired(end)) != 1 {
			t.Errorf("clock off by %v: a Lease that does not change is not over after its duration", off)
		}
		l.Spec.RenewTime = &MicroTime{l.Spec.RenewTime.Add(time.Second)}
		if s.Add(l, now.Add(time.Hour)); s.Valid(now.Add(time.Hour)) != 1 {
			t.Errorf("clock off by %v: not valid after a renewal", off)
		}
	}
}
