// SPDX-License-Identifier: Apache-2.0

package membudget

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const (
	modelPeer  = 3_000
	modelTotal = 7_000
	modelOne   = 2_000 // what one step adds at most
)

// modelBook is a Budget together with the model's own count of what is held.
type modelBook struct {
	l     *Budget
	mu    sync.Mutex
	used  int64
	peers []*modelPeerLink
	reset map[string]int // number of OnReset calls for each limit
}

// modelPeerLink is a link of a peer, with connections that hold bytes.
type modelPeerLink struct {
	b       *modelBook
	name    string
	account *Account
	conns   []*modelConn
}

type modelConn struct {
	bytes int
	since time.Time
	gone  bool
}

// Holdings implements Member.
func (p *modelPeerLink) Holdings() (all []Holding) {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	for _, c := range p.conns {
		if c.bytes > 0 {
			all = append(all, Holding{Bytes: c.bytes, Since: c.since, Reset: func() { p.drop(c) }})
		}
	}
	return all
}

// SetAccount implements ChargedMember.
func (p *modelPeerLink) SetAccount(a *Account) { p.account = a }

// pass adds n bytes to a connection, or removes them if n is negative.
func (p *modelPeerLink) pass(c *modelConn, n int) {
	p.b.mu.Lock()
	if c.gone {
		p.b.mu.Unlock()
		return
	}
	n = max(n, -c.bytes)
	c.bytes += n
	if n < 0 {
		c.since = time.Now()
	}
	p.b.used += int64(n)
	p.b.mu.Unlock()
	p.account.Add(n)
	if n > 0 {
		p.account.Relieve()
	}
}

// drop resets a connection, which returns what it holds.
func (p *modelPeerLink) drop(c *modelConn) {
	p.pass(c, -math.MaxInt32)
	p.b.mu.Lock()
	c.gone = true
	p.b.mu.Unlock()
}

// held returns the bytes that the links of a peer hold according to the model, and
// whether the peer has links.
func (b *modelBook) held(name string) (sum int64, some bool) {
	for _, p := range b.peers {
		if p.name == name {
			some = true
			for _, c := range p.conns {
				sum += int64(c.bytes)
			}
		}
	}
	return sum, some
}

func newModelBook() *modelBook {
	b := &modelBook{reset: map[string]int{}}
	b.l = New(Config{Peer: modelPeer, Total: modelTotal, Used: func() int64 {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.used
	}, OnReset: func(peer string, _ int, _ int64) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.reset[peer]++
	}})
	return b
}

func (b *modelBook) join(name string) {
	p := &modelPeerLink{b: b, name: name}
	b.l.Open(name, p)
	b.peers = append(b.peers, p)
}

// leave closes a link with all its connections.
func (b *modelBook) leave(i int) {
	p := b.peers[i]
	for _, c := range p.conns {
		p.drop(c)
	}
	p.account.Leave(p)
	b.peers = append(b.peers[:i:i], b.peers[i+1:]...)
}

// step performs one operation on a link, as the schedule says.
func (b *modelBook) step(rt *rapid.T) {
	name := fmt.Sprint("peer ", rapid.IntRange(0, 3).Draw(rt, "peer"))
	if len(b.peers) == 0 || rapid.IntRange(0, 9).Draw(rt, "new") == 0 {
		b.join(name)
		return
	}
	i := rapid.IntRange(0, len(b.peers)-1).Draw(rt, "link")
	p := b.peers[i]
	if len(p.conns) == 0 || rapid.IntRange(0, 4).Draw(rt, "open") == 0 {
		age := time.Duration(rapid.IntRange(0, 100).Draw(rt, "age")) * time.Second
		p.conns = append(p.conns, &modelConn{since: time.Now().Add(-age)})
	}
	c := p.conns[rapid.IntRange(0, len(p.conns)-1).Draw(rt, "connection")]
	switch rapid.IntRange(0, 9).Draw(rt, "op") {
	case 0:
		b.leave(i)
	case 1:
		p.drop(c)
	case 2, 3:
		p.pass(c, -rapid.IntRange(1, modelOne).Draw(rt, "passed on"))
	default:
		p.pass(c, rapid.IntRange(1, modelOne).Draw(rt, "held"))
	}
}

// check compares accounts with the model and with the limits. Only the account and the
// connections hold anything here, so anything that a step added above a limit has been
// returned when the step is over.
func (b *modelBook) check(rt *rapid.T) {
	var sum int64
	for _, p := range b.peers {
		want, _ := b.held(p.name)
		switch got := p.account.Held(); {
		case got != want:
			rt.Fatalf("the account of %s holds %d, its links hold %d", p.name, got, want)
		case got < 0 || got > modelPeer:
			rt.Fatalf("the account of %s holds %d, bound %d", p.name, got, modelPeer)
		}
	}
	for name, a := range b.l.accounts {
		if _, some := b.held(name); !some {
			rt.Fatalf("the account of %s stays without a link", name)
		}
		sum += a.Held()
	}
	if sum != b.used || sum > modelTotal {
		rt.Fatalf("accounts hold %d, in use are %d, bound %d", sum, b.used, modelTotal)
	}
	if tight := b.used > modelTotal/2; b.l.tight() != tight {
		rt.Fatalf("with %d of %d in use: tight is %v", b.used, modelTotal, !tight)
	}
}

// TestModel runs random schedules. Accounts hold what their links hold, never less
// than zero and never more than the limits, and everything is returned.
func TestModel(t *testing.T) {
	resets := 0
	rapid.Check(t, func(rt *rapid.T) {
		b := newModelBook()
		for range rapid.IntRange(50, 300).Draw(rt, "steps") {
			b.step(rt)
			b.check(rt)
		}
		for len(b.peers) > 0 {
			b.leave(len(b.peers) - 1)
		}
		b.check(rt)
		if len(b.l.accounts) > 0 || b.used != 0 || b.l.held() != 0 {
			rt.Fatalf("%d accounts and %d bytes are left", len(b.l.accounts), b.used)
		}
		for _, n := range b.reset {
			resets += n
		}
	})
	if resets == 0 {
		t.Error("no schedule came to a bound")
	}
}

// TestModelAtOnce does the same from several goroutines. There a limit may be exceeded
// while a goroutine looks for connections to reset.
func TestModelAtOnce(t *testing.T) {
	b := newModelBook()
	for i := range 4 {
		b.join(fmt.Sprint("peer ", i%2))
	}
	var wg sync.WaitGroup
	for i, p := range b.peers {
		wg.Go(func() {
			for k := range 2_000 {
				c := &modelConn{since: time.Now()}
				b.mu.Lock()
				p.conns = append(p.conns, c)
				b.mu.Unlock()
				p.pass(c, 1+(k*7+i)%modelOne)
				if k%3 == 0 {
					p.pass(c, -modelOne/2)
				}
				if k%50 == 49 {
					b.mu.Lock()
					all := p.conns
					p.conns = nil
					b.mu.Unlock()
					for _, c := range all {
						p.drop(c)
					}
				}
			}
		})
	}
	wg.Wait()
	for _, p := range b.peers {
		if want, _ := b.held(p.name); p.account.Held() != want {
			t.Errorf("the account of %s holds %d, its links hold %d", p.name, p.account.Held(), want)
		}
	}
	for len(b.peers) > 0 {
		b.leave(len(b.peers) - 1)
	}
	if n := b.l.held(); n != 0 || b.used != 0 || len(b.l.accounts) > 0 {
		t.Errorf("%d bytes on %d accounts, %d in use at last", n, len(b.l.accounts), b.used)
	}
}
