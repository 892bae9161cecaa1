// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
)

// countsLeases reports whether an agent takes the number of servers from their Leases.
func countsLeases(a observe.Program) bool { return a.Flag("count-server-leases", "false") == "true" }

// looksOn reports whether an agent looks for further servers whatever their number is.
func looksOn(a observe.Program) bool { return a.Flag("sync-forever", "false") == "true" }

// publishes reports whether a server has a Lease for agents that count them.
func publishes(p observe.Program) bool { return p.Flag("enable-lease-controller", "false") == "true" }

// every reports whether there are programs and all have something.
func every(programs []observe.Program, has func(observe.Program) bool) bool {
	return len(programs) > 0 && !slices.ContainsFunc(programs, func(p observe.Program) bool { return !has(p) })
}

// serverCount compares the number that each server tells agents with that of servers. Agents that count Leases do not need it, and agents that look
// on whatever it is find all servers if it is too low.
func serverCount(s *observe.Snapshot) ([]Finding, error) {
	servers, agents, err := tunnel(s)
	if err != nil {
		return nil, err
	}
	if len(servers) == 0 {
		return nil, check.Skip("no server is visible")
	}
	if every(agents, countsLeases) || len(agents) == 0 && every(servers, publishes) {
		return nil, check.Skip("agents count the servers' Leases")
	}
	lookOn := every(agents, func(a observe.Program) bool { return countsLeases(a) || looksOn(a) })
	told := map[string]string{}
	for _, p := range servers {
		told[p.Flag("server-count", "1")] = p.Name
	}
	var out []Finding
	for _, n := range sorted(told) {
		number, err := strconv.Atoi(n)
		if err == nil && (number == len(servers) || lookOn && number == 1) {
			continue
		}
		out = append(out, Finding{Object: told[n], Message: fmt.Sprintf("it tells agents --server-count=%s; running servers: %d", n, len(servers)),
			Fix: fmt.Sprintf("konnectivity.server.count: %d", len(servers)), Warning: lookOn && err == nil && number < len(servers)})
	}
	return out, nil
}

func serverLeases(s *observe.Snapshot) ([]Finding, error) {
	servers, _, err := tunnel(s)
	if err != nil {
		return nil, err
	}
	leases, err := s.Leases.Get()
	if err != nil {
		return nil, err
	}
	// Servers keep their Leases where their flags say.
	type place struct{ namespace, label string }
	counting := map[place]int{}
	var places []place
	for _, p := range servers {
		if at := (place{p.Flag("lease-namespace", observe.DefaultLeaseNamespace), p.Flag("lease-label", observe.DefaultLeaseLabel)}); publishes(p) {
			if counting[at]++; counting[at] == 1 {
				places = append(places, at)
			}
		}
	}
	if len(places) == 0 {
		return nil, check.Skip("servers publish no Leases")
	}
	var out []Finding
	for _, at := range places {
		selector, err := labels.Parse(at.label)
		if err != nil {
			return out, fmt.Errorf("--lease-label=%s of the servers: %w", at.label, err)
		}
		live := 0
		for i := range leases {
			if l := &leases[i]; l.Namespace == at.namespace && selector.Matches(labels.Set(l.Labels)) && valid(l, s) {
				live++
				out = append(out, oddClock(l)...)
			}
		}
		if live != counting[at] {
			out = append(out, Finding{Message: fmt.Sprintf("valid Leases of servers: %d; running servers: %d", live, counting[at]),
				Fix: fmt.Sprintf("kubectl -n %s get leases -l %s", at.namespace, at.label)})
		}
	}
	return out, nil
}

// valid reports whether a Lease has been renewed in time, by the API server's clock.
func valid(l *coordinationv1.Lease, s *observe.Snapshot) bool {
	at := written(l)
	if at.IsZero() && l.Spec.RenewTime != nil {
		at = l.Spec.RenewTime.Time
	}
	return !observe.ReadAt(s, s.Leases).After(at.Add(leaseDuration(l) + maxSkew))
}

// written is when a Lease was last written, by the API server's clock; zero if that is not known.
func written(l *coordinationv1.Lease) (at time.Time) {
	for _, m := range l.ManagedFields {
		if m.Time != nil && m.Time.After(at) {
			at = m.Time.Time
		}
	}
	return at
}

// oddClock finds that the holder of a Lease has another time than the API server.
func oddClock(l *coordinationv1.Lease) []Finding {
	at := written(l)
	if at.IsZero() || l.Spec.RenewTime == nil || l.Spec.RenewTime.Sub(at).Abs() <= maxSkew {
		return nil
	}
	return []Finding{{Object: "Lease " + l.Namespace + "/" + l.Name, Warning: true, Fix: "timedatectl set-ntp true   # on the node of the server",
		Message: fmt.Sprintf("server %q renewed it at %s by its own clock, when the API server had %s: upstream's agents and servers count it as dead, or count it for too long after its end",
			holderOf(l), clock(l.Spec.RenewTime.Time), clock(at))}}
}
