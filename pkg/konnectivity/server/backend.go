package server

import (
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/compat"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/ledger"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel"
)

// Identifiers are what an agent says it can reach.
type Identifiers struct {
	IPv4, IPv6, Host, CIDR []string
	DefaultRoute           bool

	owner   string // whom claims were held against: a node or a common name
	checked bool   // they were held against somebody, of whom the name may be empty
}

// ParseIdentifiers reads the URL query in which agents send identifiers. Unknown
// kinds are skipped, for agents newer than the server.
func ParseIdentifiers(query string) (Identifiers, error) {
	var ids Identifiers
	v, err := url.ParseQuery(query)
	if err != nil {
		return ids, err
	}
	ids.IPv4, ids.IPv6, ids.Host, ids.CIDR = v["ipv4"], v["ipv6"], v["host"], v["cidr"]
	if d := v["default-route"]; len(d) > 0 {
		ids.DefaultRoute, _ = strconv.ParseBool(d[0])
	}
	return ids, nil
}

// hosts are the identifiers that strategy destHost compares with.
func (ids *Identifiers) hosts() []string {
	return append(append(append([]string(nil), ids.IPv4...), ids.IPv6...), ids.Host...)
}

// Backend is one connection of an agent.
type Backend struct {
	agentID string
	ids     Identifiers
	peer    string
	most    int // connections at a time; 0 is no bound

	link    *link.Link
	session *compat.Session
	h2      *h2.Conn
	account *ledger.Account

	draining atomic.Bool
	mu       sync.Mutex
	dials    map[*attempt]time.Time // unanswered, with when they were sent
}

// key is what connections of one agent have in common. Where claims are checked nobody
// gets a share of another's dials and memory by its ID.
func (b *Backend) key() string {
	if !b.ids.checked {
		return b.agentID
	}
	return fmt.Sprintf("%q of %q", b.agentID, b.ids.owner)
}

// holder is the link or the session as what holds memory.
func (b *Backend) holder() ledger.Payer {
	if b.link != nil {
		return b.link
	}
	return b.session
}

// dial asks the agent to connect to an address. mayWait is as in
// tunnel.Stream.Send.
func (b *Backend) dial(address string, at *attempt, mayWait bool) (tunnel.Stream, error) {
	b.mu.Lock()
	b.dials[at] = time.Now()
	b.mu.Unlock()
	var st tunnel.Stream
	var err error
	if b.link != nil {
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
// being dialled included.
func (b *Backend) streams() int {
	if b.link != nil {
		return b.link.Streams()
	}
	return b.session.Len()
}

// full tells whether there are as many connections on the agent's link as may be.
func (b *Backend) full() bool { return b.most > 0 && b.streams() >= b.most }

// suspectAfter is for how long an agent may leave a ping unanswered before it
// gets no new dials.
const suspectAfter = 2 * time.Second

// suspect tells whether the agent seems to be frozen or cut off.
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
