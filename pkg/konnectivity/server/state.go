// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

// State returns what the server knows of itself and its agents.
func (s *Server) State() state.State {
	out := state.State{Version: state.Version, Time: time.Now().UTC(), Links: []state.Link{}}
	out.Server = state.Server{
		ID: s.cfg.ServerID, Started: time.Unix(0, s.started.Load()).UTC(), Ready: s.reg.ready(), Stopping: s.goingDown(),
		CountMode: state.CountByFlag, Count: s.cfg.ServerCount,
		PendingDials: s.m.pendingDials.Get(), Connections: s.m.established.Get(),
	}
	if s.local != nil {
		out.Server.LocalConnections = int64(s.local.b.streams())
	}
	for _, st := range s.cfg.Strategies {
		out.Server.Strategies = append(out.Server.Strategies, st.String())
	}
	for _, b := range s.reg.list() {
		out.Links = append(out.Links, b.state())
	}
	slices.SortFunc(out.Links, func(a, b state.Link) int {
		return cmp.Or(cmp.Compare(a.AgentID, b.AgentID), cmp.Compare(a.Peer, b.Peer))
	})
	return out
}

func (b *Backend) state() state.Link {
	b.mu.Lock()
	pending := len(b.dials)
	b.mu.Unlock()
	l := state.Link{
		AgentID: b.agentID, Owner: b.ids.owner, Pod: b.ids.pod, Peer: b.peer, AgentVersion: b.version, Protocol: state.ProtocolUpstream,
		Identifiers: b.ids.list(), Since: b.since.UTC(),
		OpenConnections: max(0, b.streams()-pending), PendingDials: pending,
		DialsTotal: b.tally.dials.Load(), DialFailures: b.tally.failures.Load(),
		BytesToAgent: b.tally.sent.Load(), BytesFromAgent: b.tally.received.Load(),
		Draining: b.draining.Load() || b.tenure.expelled.Load() != 0, Silent: b.suspect(),
	}
	if b.link != nil {
		l.Protocol, l.RTTMicroseconds = state.ProtocolFairlead, b.link.RTT().Microseconds()
	}
	return l
}

// list returns the identifiers as "kind=value".
func (ids *Identifiers) list() (out []string) {
	for _, kind := range []struct {
		name   string
		values []string
	}{{"host", ids.Host}, {"ipv4", ids.IPv4}, {"ipv6", ids.IPv6}, {"cidr", ids.CIDR}} {
		for _, v := range kind.values {
			out = append(out, kind.name+"="+v)
		}
	}
	if ids.DefaultRoute {
		out = append(out, "default-route=true")
	}
	return out
}

// Connections returns the connections with serial numbers greater than after, at most limit of them.
func (s *Server) Connections(after int64, limit int) state.Connections {
	out := state.Connections{Version: state.Version, Time: time.Now().UTC(), ServerID: s.cfg.ServerID,
		Started: time.Unix(0, s.started.Load()).UTC(), Connections: []state.Connection{}}
	found := lowest{most: limit + 1} // one more says that there are more
	for _, b := range s.backends() {
		b.each(func(r tunnel.Receiver) {
			if at, ok := r.(*attempt); ok && at.p.serial > after && at.since.Load() != 0 {
				found.add(numbered{at.p.serial, at})
			}
		})
	}
	for _, n := range found.sorted() {
		at := n.at
		if len(out.Connections) == limit {
			out.More = true
			break
		}
		out.Connections = append(out.Connections, state.Connection{
			Serial: at.p.serial, Destination: at.p.address, AgentID: at.b.agentID, Owner: at.b.ids.owner, Since: time.Unix(0, at.since.Load()).UTC(),
			BytesToAgent: at.moved.sent.Load(), BytesFromAgent: at.moved.received.Load(),
		})
	}
	return out
}

// each calls f with the receiver of each stream of the link. f must not call methods of the link or its streams.
func (b *Backend) each(f func(tunnel.Receiver)) {
	if b.link != nil {
		b.link.Each(f)
	} else {
		b.session.Each(f)
	}
}

// numbered is an attempt with its serial number, which sorting needs many times.
type numbered struct {
	serial int64
	at     *attempt
}

// lowest keeps those of many attempts that have the lowest serial numbers. It is filled while a link is locked.
type lowest struct {
	most  int // how many
	found []numbered
	bound int64 // the greatest serial number that is kept, once there are enough; 0 before
}

func (l *lowest) add(n numbered) {
	if l.bound != 0 && n.serial > l.bound {
		return
	}
	if l.found = append(l.found, n); len(l.found) >= 2*l.most { // sorting each time would take longer
		l.sorted()
	}
}

// sorted drops what is too much, and returns the rest.
func (l *lowest) sorted() []numbered {
	slices.SortFunc(l.found, func(a, b numbered) int { return cmp.Compare(a.serial, b.serial) })
	if len(l.found) >= l.most {
		l.found = l.found[:l.most]
		l.bound = l.found[l.most-1].serial
	}
	return l.found
}
