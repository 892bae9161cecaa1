// SPDX-License-Identifier: Apache-2.0

// Package membudget limits the memory that connections use for data queued to
// slow receivers: per peer, for all its connections together, and for the whole
// process. When a limit is exceeded, the connections that have been stalled
// longest with the most data are reset. The peers and all other connections
// continue.
package membudget

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
)

// Config holds the limits. A limit of zero means unlimited.
type Config struct {
	// Peer is the number of bytes that all connections with one peer may hold
	// together.
	Peer int64
	// Total is the number of bytes that all queues of the process may hold. When
	// it is exceeded, slow receivers may keep half of it.
	Total int64
	// Used returns the number of bytes in all queues of the process. Default
	// buffer.InUse.
	Used func() int64
	// OnReset is called once each time that connections were reset. peer is the
	// peer whose limit was exceeded. It is empty for the limit of the process.
	OnReset func(peer string, connections int, bytes int64)
}

// Holding is the data that one connection holds.
type Holding struct {
	Bytes int
	// Since is the time when the connection last passed bytes on.
	Since time.Time
	// Reset resets the connection. It is called without locks held.
	Reset func()
}

// Member is a link or a session that knows its connections. Holdings must not
// call the Budget.
type Member interface{ Holdings() []Holding }

// Budget accounts for the memory of one process.
type Budget struct {
	cfg  Config
	busy atomic.Bool  // a goroutine is looking for connections to reset
	lent atomic.Int64 // see Take
	rest atomic.Int64 // no search before this time, unix nanoseconds

	mu       sync.Mutex
	accounts map[string]*Account
}

// New returns an empty Budget.
func New(cfg Config) *Budget {
	if cfg.Used == nil {
		cfg.Used = buffer.InUse
	}
	return &Budget{cfg: cfg, accounts: map[string]*Account{}}
}

// Account counts the bytes held for one peer. A nil Account counts nothing.
type Account struct {
	l       *Budget
	name    string
	held    atomic.Int64
	members []Member // guarded by l.mu
}

// ChargedMember is a Member that charges the bytes it holds to an account.
type ChargedMember interface {
	Member
	SetAccount(a *Account)
}

// Open joins a connection of a peer and makes it charge the bytes it holds to the
// peer's account.
func (l *Budget) Open(peer string, p ChargedMember) *Account {
	a := l.Join(peer, p)
	p.SetAccount(a)
	return a
}

// Join adds a connection of a peer and returns the peer's account. It returns nil
// for a nil Budget.
func (l *Budget) Join(peer string, m Member) *Account {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[peer]
	if a == nil {
		a = &Account{l: l, name: peer}
		l.accounts[peer] = a
	}
	a.members = append(a.members, m)
	return a
}

// Leave removes a connection, which must not hold any bytes.
func (a *Account) Leave(m Member) {
	if a == nil {
		return
	}
	a.l.mu.Lock()
	defer a.l.mu.Unlock()
	if i := slices.Index(a.members, m); i >= 0 {
		a.members = slices.Delete(a.members, i, i+1)
	}
	if len(a.members) == 0 && a.l.accounts[a.name] == a {
		delete(a.l.accounts, a.name)
	}
}

// Add adds n bytes, or removes them if n is negative. After Add with a positive
// n, the caller calls Relieve without locks held.
func (a *Account) Add(n int) {
	if a != nil {
		a.held.Add(int64(n))
	}
}

// Held returns the bytes that the peer's connections hold.
func (a *Account) Held() int64 { return a.held.Load() }

// Relieve resets connections if a limit is exceeded.
func (a *Account) Relieve() {
	if a == nil {
		return
	}
	c := &a.l.cfg
	if c.Peer > 0 && a.held.Load() > c.Peer || c.Total > 0 && c.Used() > c.Total {
		a.l.relieve(a)
	}
}

// Bound returns the metric label of the limit for which connections were reset:
// "peer", or "total" if peer is empty.
func Bound(peer string) string {
	if peer == "" {
		return boundTotal
	}
	return boundPeer
}

const boundTotal, boundPeer = "total", "peer"

// Bounds are all that Bound returns.
var Bounds = []string{boundTotal, boundPeer}

// Explain describes the limit for which connections were reset. kind is the kind
// of peers, such as "agent".
func Explain(kind, peer string, peerBound, total int64) string {
	if peer == "" {
		return fmt.Sprintf("all queues together may take %d, --total-buffer", total)
	}
	return fmt.Sprintf("those of %s %s may hold %d, --peer-buffer", kind, peer, peerBound)
}

// pause is how long no goroutine searches again after a search that found too
// little.
const pause = 100 * time.Millisecond

// relieve brings the process below both limits, with an eighth to spare, so that
// the next search through all connections is not due soon.
func (l *Budget) relieve(a *Account) {
	now := time.Now()
	if now.UnixNano() < l.rest.Load() || !l.busy.CompareAndSwap(false, true) {
		return
	}
	defer l.busy.Store(false)
	enough := true
	if over := a.held.Load() - l.cfg.Peer; l.cfg.Peer > 0 && over > 0 {
		enough = l.reset(now, a.name, l.membersOf(a), over+l.cfg.Peer/8)
	}
	if over := l.cfg.Used() - l.cfg.Total; l.cfg.Total > 0 && over > 0 {
		// The rest is on its way to peers and shrinks by itself, see Room.
		share := l.held() - l.cfg.Total/2
		enough = share > 0 && l.reset(now, "", l.membersOf(nil), min(share, over+l.cfg.Total/8)) && enough
	}
	if !enough {
		l.rest.Store(now.Add(pause).UnixNano())
	}
}

// held returns the bytes that the connections of all peers hold.
func (l *Budget) held() (sum int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.accounts {
		sum += a.held.Load()
	}
	return sum
}

// membersOf returns the connections of one peer, or of all.
func (l *Budget) membersOf(a *Account) (all []Member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a != nil {
		return slices.Clone(a.members)
	}
	for _, other := range l.accounts {
		all = append(all, other.members...)
	}
	return all
}

// reset resets the worst connections until they held want bytes, and reports
// whether there were enough.
func (l *Budget) reset(now time.Time, peer string, members []Member, want int64) bool {
	var all []Holding
	for _, m := range members {
		all = append(all, m.Holdings()...)
	}
	slices.SortFunc(all, func(a, b Holding) int {
		switch x, y := badness(now, &a), badness(now, &b); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	n, freed := 0, int64(0)
	for _, h := range all {
		if freed >= want {
			break
		}
		freed += int64(h.Bytes)
		h.Reset()
		n++
	}
	if n > 0 && l.cfg.OnReset != nil {
		l.cfg.OnReset(peer, n, freed)
	}
	return freed >= want
}

// badness rates how much memory a connection has held for how long. A stalled
// connection is worse than one that holds more and makes progress.
func badness(now time.Time, h *Holding) float64 {
	return float64(h.Bytes) * (max(0, now.Sub(h.Since).Seconds()) + 0.001)
}
