// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy stands between an agent and a server, or a client and a server, and can
// go bad in the ways that networks do.
type Proxy struct {
	Addr string

	to      atomic.Pointer[string]
	forth   atomic.Bool // passes nothing on from the one who connected
	back    atomic.Bool // passes nothing on toward the one who connected
	refuses atomic.Bool // turns new connections away
	refused atomic.Int64
	delay   atomic.Int64
	pieces  atomic.Int64 // greatest size of a piece; 0 is any

	mu     sync.Mutex
	closed bool
	conns  []net.Conn
}

// NewProxy returns a proxy to an address.
func NewProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String()}
	p.To(to)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			if p.refuses.Load() {
				p.refused.Add(1)
				a.Close()
				continue
			}
			b, err := net.Dial("tcp", *p.to.Load())
			if err != nil {
				a.Close()
				continue
			}
			if !p.keep(a, b) {
				return
			}
			wg.Go(func() { p.copy(b, a, &p.forth) })
			wg.Go(func() { p.copy(a, b, &p.back) })
		}
	})
	t.Cleanup(func() { l.Close(); p.close(); wg.Wait() })
	return p
}

// keep keeps the two connections of a client for Cut. After close, it closes them and reports false: the listener can still
// return a connection while it is being closed.
func (p *Proxy) keep(a, b net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_, _ = a.Close(), b.Close()
		return false
	}
	p.conns = append(p.conns, a, b)
	return true
}

// close is Cut for all connections, also those that are kept later.
func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Cut()
}

// To has the next connections lead to another address.
func (p *Proxy) To(addr string) { p.to.Store(&addr) }

// Freeze makes the proxy pass nothing on, as a frozen peer or a network that drops
// packets without a word, until it is called with false.
func (p *Proxy) Freeze(on bool) { p.forth.Store(on); p.back.Store(on) }

// HalfOpen makes the proxy pass on only what comes from the one who connected.
func (p *Proxy) HalfOpen(on bool) { p.back.Store(on) }

// HalfShut makes the proxy pass on only what goes to the one who connected.
func (p *Proxy) HalfShut(on bool) { p.forth.Store(on) }

// Refuse makes the proxy turn new connections away.
func (p *Proxy) Refuse(on bool) { p.refuses.Store(on) }

// Refused is the number of connections that were turned away.
func (p *Proxy) Refused() int64 { return p.refused.Load() }

// Slow delays each piece by up to d.
func (p *Proxy) Slow(d time.Duration) { p.delay.Store(int64(d)) }

// Chop passes on pieces of random sizes up to n bytes.
func (p *Proxy) Chop(n int) { p.pieces.Store(int64(n)) }

// Cut ends all connections by reset, and thaws the proxy.
func (p *Proxy) Cut() {
	p.Freeze(false)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	p.conns = nil
}

// CutOne ends the oldest connection by reset.
func (p *Proxy) CutOne() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns[:2] {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	p.conns = p.conns[2:]
}

// Carried is the number of connections that came and were not cut.
func (p *Proxy) Carried() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) / 2
}

// copy passes on pieces of odd sizes while it is not held.
func (p *Proxy) copy(dst, src net.Conn, held *atomic.Bool) {
	b := make([]byte, 7001)
	for {
		room := b
		if n := p.pieces.Load(); n > 0 {
			room = b[:1+rand.IntN(int(min(n, int64(len(b)))))]
		}
		n, err := src.Read(room)
		for held.Load() {
			time.Sleep(5 * time.Millisecond) // a poll: the proxy is held for a short time
		}
		if d := p.delay.Load(); d > 0 {
			time.Sleep(time.Duration(rand.Int64N(d))) // the delay itself
		}
		if n > 0 {
			if _, werr := dst.Write(b[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			_ = dst.Close()
			return
		}
	}
}
