// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/identifiers"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/membudget"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/upstream"
)

// Identifiers are what an agent says it can reach.
type Identifiers struct {
	IPv4, IPv6, Host, CIDR []string
	DefaultRoute           bool

	owner string // whom the agent belongs to: a node, or the common name of a certificate
	owned bool   // the owner is known, though a certificate may have no common name
	seat  *seat  // among the owner's links; nil if the owner is not known
	pod   string // that the agent's token is bound to; "" if it is not known

	exclusive bool              // hosts were compared with those of the owner, a node
	contested map[string]string // hosts that are not the owner's alone, and why
	problems  []string          // identifiers that match no destination
}

// ParseIdentifiers reads the URL query in which agents send identifiers. Unknown
// kinds are skipped, for agents newer than the server.
func ParseIdentifiers(query string) (Identifiers, error) {
	var ids Identifiers
	v, err := url.ParseQuery(query)
	if err != nil {
		return ids, err
	}
	ids.IPv4, ids.IPv6, ids.Host, ids.CIDR = canonical(v["ipv4"]), canonical(v["ipv6"]), canonical(v["host"]), v["cidr"]
	ids.problems = identifiers.Problems(v)
	if d := v["default-route"]; len(d) > 0 {
		ids.DefaultRoute, _ = strconv.ParseBool(d[0])
	}
	return ids, nil
}

// canonical returns hosts in the form in which they are compared, without empty ones and
// those that are there already.
func canonical(hosts []string) (out []string) {
	for _, h := range hosts {
		if h = identifiers.Canonical(h); h != "" && !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	return out
}

// hosts are the identifiers that strategy destHost compares with.
func (ids *Identifiers) hosts() []string {
	return canonical(slices.Concat(ids.IPv4, ids.IPv6, ids.Host))
}

// Backend is one connection of an agent.
type Backend struct {
	agentID string
	ids     Identifiers
	peer    string
	version string // of the agent's program, if it sends one
	most    int    // connections at a time; 0 is no bound

	link    *link.Link
	session *upstream.Session
	h2      *h2.Conn
	traces  bool // the agent takes trace contexts
	account *membudget.Account

	since    time.Time // when it joined; set before the registry has it
	tally    tally
	tenure   tenure
	draining atomic.Bool
	mu       sync.Mutex
	dials    map[*attempt]time.Time // unanswered, with when they were sent
}

// key is what shares dials and memory: all connections of an owner where that is known,
// since an agent chooses its ID itself, and could have many or another's. The two kinds of
// keys begin differently, so that no ID equals an owner's key.
func (b *Backend) key() string {
	if !b.ids.owned {
		return fmt.Sprintf("ID %q", b.agentID)
	}
	return fmt.Sprintf("owner %q", b.ids.owner)
}

// holder is the link or the session as what holds memory.
func (b *Backend) holder() membudget.ChargedMember {
	if b.link != nil {
		return b.link
	}
	return b.session
}

// dial asks the agent to connect to an address. mayWait is as in
// tunnel.Stream.Send.
func (b *Backend) dial(address string, parent traceparent.Context, at *attempt, mayWait bool) (tunnel.Stream, error) {
	b.tally.dials.Add(1)
	b.mu.Lock()
	b.dials[at] = time.Now()
	b.mu.Unlock()
	var st tunnel.Stream
	var err error
	if b.link != nil {
		if b.traces && parent.Valid() {
			address = link.AddTrace(address, parent.String())
		}
		st, err = asStream(b.link.Dial(address, at, mayWait))
	} else {
		st, err = asStream(b.session.Dial(address, at))
	}
	if err != nil {
		b.answered(at)
	}
	return st, err
}

// asStream keeps a nil pointer from becoming a non-nil interface.
func asStream[S tunnel.Stream](st S, err error) (tunnel.Stream, error) {
	if err != nil {
		return nil, err
	}
	return st, nil
}

func (b *Backend) answered(at *attempt) {
	b.mu.Lock()
	delete(b.dials, at)
	b.mu.Unlock()
}

// load is what choices between agents compare: connections, and dials without
// an answer, which weigh more because they say something about now.
func (b *Backend) load() int {
	b.mu.Lock()
	pending := len(b.dials)
	b.mu.Unlock()
	return b.streams() + 4*pending
}

// streams is the number of connections that have not ended on the agent's link, those
// being dialed included.
func (b *Backend) streams() int {
	if b.link != nil {
		return b.link.Streams()
	}
	return b.session.Len()
}

// takesDials reports whether the agent's link takes new dials. One that the agent drains
// does so only where no other can, and not for long. One that the server drains is that
// until it is barred.
func (b *Backend) takesDials() bool { return !b.draining.Load() && !b.tenure.barred.Load() }

// full reports whether there are as many connections on the agent's link as may be.
func (b *Backend) full() bool { return b.most > 0 && b.streams() >= b.most }

// suspectAfter is for how long an agent may leave a ping unanswered before it
// gets no new dials.
const suspectAfter = 2 * time.Second

// suspect reports whether the agent seems to be frozen or cut off.
func (b *Backend) suspect() bool {
	if b.link != nil {
		silent, overdue := b.link.Silence()
		return overdue && silent > suspectAfter
	}
	silent, open := b.h2.Silence(time.Now())
	return open > time.Second && silent > suspectAfter
}

// probe asks for a sign of life.
func (b *Backend) probe() {
	if b.link != nil {
		b.link.Probe()
	} else {
		b.h2.Ping(time.Now())
	}
}

// overdue returns the dials that have been unanswered for longer than d.
func (b *Backend) overdue(d time.Duration) (ats []*attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for at, since := range b.dials {
		if now.Sub(since) > d {
			ats = append(ats, at)
		}
	}
	return ats
}

func (b *Backend) close() {
	if b.link != nil {
		b.link.Close()
	} else {
		b.h2.Close()
	}
}
