// Package ledger bounds the memory that connections hold because their receivers
// lag: all connections with one peer together, and all of the process. When a
// bound is exceeded, the connections that stand still worst are reset; the peers
// and everybody else go on.
package ledger

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
)

// Config says what may be held. A zero bound is none.
type Config struct {
	// Peer is the number of bytes held for all connections with one peer.
	Peer int64
	// Total is the number of bytes in all queues of the process. Receivers that
	// lag may hold half of that when it is exceeded.
	Total int64
	// Used tells what these hold. Default buf.InUse.
	Used func() int64
	// OnReset is called once for each time that connections were reset: for the
	// bound of the named peer, or that of all if the name is empty.
	OnReset func(peer string, connections int, bytes int64)
}

// Holding is what one connection holds.
type Holding struct {
	Bytes int
	// Since is when the connection last passed bytes on.
	Since time.Time
	// Reset ends the connection. It is called without locks held.
	Reset func()
}

// Member is a link or a session, which knows its connections. Holdings must not
// call the ledger.
type Member interface{ Holdings() []Holding }

// Ledger is that of one process.
type Ledger struct {
	cfg  Config
	busy atomic.Bool  // somebody looks for connections to reset
	lent atomic.Int64 // see Take
	rest atomic.Int64 // until when there is nothing to be found, unix nanoseconds

	mu       sync.Mutex
	accounts map[string]*Account
}

// New returns an empty ledger.
func New(cfg Config) *Ledger {
	if cfg.Used == nil {
		cfg.Used = buf.InUse
	}
	return &Ledger{cfg: cfg, accounts: map[string]*Account{}}
}

// Account is what is held for one peer. A nil account counts nothing.
type Account struct {
	l       *Ledger
	name    string
	held    atomic.Int64
	members []Member // guarded by l.mu
}

// Payer is a Member that notes on an account what it holds.
type Payer interface {
	Member
	Bill(a *Account)
}

// Open joins a connection of a peer, and has it note what it holds on the peer's
// account.
func (l *Ledger) Open(peer string, p Payer) *Account {
	a := l.Join(peer, p)
	p.Bill(a)
	return a
}

// Join adds a connection of a peer and returns the peer's account. A nil ledger
// has none.
func (l *Ledger) Join(peer string, m Member) *Account {
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

// Leave removes a connection, which holds nothing any more.
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

// Add counts n bytes more, or less. The caller of Add(n) with n above 0 calls
// Relieve afterwards, without locks held.
func (a *Account) Add(n int) {
	if a != nil {
		a.held.Add(int64(n))
	}
}

// Held is what the peer's connections hold.
func (a *Account) Held() int64 { return a.held.Load() }

// Relieve resets connections if a bound is exceeded.
func (a *Account) Relieve() {
	if a == nil {
		return
	}
	c := &a.l.cfg
	if c.Peer > 0 && a.held.Load() > c.Peer || c.Total > 0 && c.Used() > c.Total {
		a.l.relieve(a)
	}
}

// Bound names for metrics the bound that a reset was for: that of a peer, or that
// of all.
func Bound(peer string) string {
	if peer == "" {
		return "total"
	}
	return "peer"
}

// Explain says in words for which bound connections were reset. kind is what peers
// are.
func Explain(kind, peer string, peerBound, total int64) string {
	if peer == "" {
		return fmt.Sprintf("all queues together may take %d, --total-buffer", total)
	}
	return fmt.Sprintf("those of %s %s may hold %d, --peer-buffer", kind, peer, peerBound)
}

// pause is for how long nobody looks again after a look that found too little.
const pause = 100 * time.Millisecond

// relieve gets both bounds kept, with an eighth to spare, so that the next search
// through all connections is some way off.
func (l *Ledger) relieve(a *Account) {
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
		// The rest is on its way to peers: that gets less by itself, see Room.
		share := l.held() - l.cfg.Total/2
		enough = share > 0 && l.reset(now, "", l.membersOf(nil), min(share, over+l.cfg.Total/8)) && enough
	}
	if !enough {
		l.rest.Store(now.Add(pause).UnixNano())
	}
}

// held is what all peers' connections hold.
func (l *Ledger) held() (sum int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.accounts {
		sum += a.held.Load()
	}
	return sum
}

// membersOf returns the connections of one peer, or of all.
func (l *Ledger) membersOf(a *Account) (all []Member) {
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

// reset ends the worst connections until they held want bytes, and tells whether
// there were enough.
func (l *Ledger) reset(now time.Time, peer string, members []Member, want int64) bool {
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

// badness is how much memory a connection has held for how long: one that stands
// still is worse than one that holds more and moves on.
func badness(now time.Time, h *Holding) float64 {
	return float64(h.Bytes) * (max(0, now.Sub(h.Since).Seconds()) + 0.001)
}
