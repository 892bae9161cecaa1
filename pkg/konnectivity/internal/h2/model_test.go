// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
)

const (
	modelWindow = 60_000
	modelFirst  = 16_000
	modelBudget = 3 * (modelWindow - modelFirst)
	// controlByte represents a control message in what an end has sent or got. Data
	// bytes are smaller values, different ones for each tunneled connection.
	controlByte = 255
)

// modelPair is a client and a server that share a budget.
type modelPair struct {
	client, server *Conn
	budget         *purse
	opened         chan *Stream
	over           sync.WaitGroup
	errs           [2]error
}

func newModelPair(t *testing.T) *modelPair {
	a, b := joined(t, "unix")
	for _, c := range []net.Conn{a, b} { // small buffers, so that writes wait
		_ = c.(*net.UnixConn).SetWriteBuffer(16 << 10)
	}
	p := &modelPair{budget: &purse{}, opened: make(chan *Stream, 10)}
	p.budget.left.Store(modelBudget)
	cfg := Config{StreamWindow: modelWindow, FirstWindow: modelFirst, ConnWindow: 100_000, MaxOut: 32 << 10, AckDelay: 100 * time.Microsecond, Budget: p.budget}
	p.client = NewClient(a, cfg)
	cfg.OnStream = func(st *Stream, _ []Field) {
		m := &modelEnd{st: st}
		st.SetHandler(m)
		st.WriteHeaders([]Field{{":status", "200"}})
		p.opened <- st
	}
	p.server = NewServer(b, cfg)
	for i, c := range []*Conn{p.client, p.server} {
		p.over.Go(func() { p.errs[i] = c.Serve() })
	}
	return p
}

// open returns both ends of a new stream.
func (p *modelPair) open(rt *rapid.T) (client, server *modelEnd) {
	client = &modelEnd{slow: rapid.Bool().Draw(rt, "slow client")}
	slow := rapid.Bool().Draw(rt, "slow server")
	client.st = p.client.Open([]Field{{":method", "POST"}, {":path", "/x"}}, client)
	st := <-p.opened
	server = st.h.(*modelEnd)
	server.mu.Lock()
	server.slow = slow
	server.mu.Unlock()
	client.other, server.other = server, client
	return client, server
}

// TestModel drives several streams of one connection with random schedules. What was
// sent before an orderly end arrives in order and on its own stream, followed by the
// end. A reset of a stream, or the end of the connection, may cut the data at any place,
// and a reset affects no other stream. Each handler is notified of the end once. Senders
// respect the windows, and nothing is left.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := newModelPair(t)
		var all []*modelEnd
		for range rapid.IntRange(1, 4).Draw(rt, "streams") {
			c, s := p.open(rt)
			all = append(all, c, s)
		}
		for range rapid.IntRange(1, 20*len(all)).Draw(rt, "steps") {
			all[rapid.IntRange(0, len(all)-1).Draw(rt, "end")].step(rt)
			p.frugal(rt)
		}
		var cut []*modelEnd
		if len(all) > 2 && rapid.Bool().Draw(rt, "reset") {
			cut, all = all[:2], all[2:]
			m := cut[rapid.IntRange(0, 1).Draw(rt, "by")]
			m.reset = true
			m.st.Reset(CodeCancel)
		}
		killed := rapid.IntRange(0, 4).Draw(rt, "kill") == 0
		for _, m := range all {
			m.st.Finish([]Field{{"grpc-status", "0"}})
			m.hasten()
		}
		if killed {
			[]*Conn{p.client, p.server}[rapid.IntRange(0, 1).Draw(rt, "whom")].Close()
		}
		for _, m := range append(all, cut...) {
			sinktest.Eventually(rt, "a handler gets the end", func() bool { m.consume(true); return m.reset || m.over() })
		}
		for _, m := range append(all, cut...) {
			m.heard(rt, !killed && len(cut) == 0 || !killed && m != cut[0] && m != cut[1])
		}
		p.end(rt, killed)
		for _, m := range append(all, cut...) {
			m.settled(rt)
		}
	})
}

// frugal checks that neither end sends more than the connection's window allows. The
// ends themselves check the windows of streams.
func (p *modelPair) frugal(rt *rapid.T) {
	for _, c := range []*Conn{p.client, p.server} {
		c.mu.Lock()
		left := c.sendWin
		c.mu.Unlock()
		if left < 0 {
			rt.Fatalf("the connection's window was exceeded by %d bytes", -left)
		}
	}
}

// end ends the connections and checks that no streams are left.
func (p *modelPair) end(rt *rapid.T, killed bool) {
	sinktest.Eventually(rt, "streams are forgotten", func() bool { return p.client.Streams() == 0 && p.server.Streams() == 0 })
	p.server.GoAway("")
	p.client.GoAway("")
	p.over.Wait()
	for i, c := range []*Conn{p.client, p.server} {
		var ce *ConnError
		if errors.As(p.errs[i], &ce) && !killed {
			rt.Fatalf("the connection ended with %v", p.errs[i])
		}
		c.mu.Lock()
		left := fmt.Sprint(c.answers, len(c.pump), c.out.Buffered())
		c.mu.Unlock()
		if left != "0 0 0" {
			rt.Fatalf("bytes of answers, streams with something to send, bytes for the socket: %s are left", left)
		}
	}
	if n := p.budget.left.Load(); n != modelBudget {
		rt.Fatalf("%d bytes of the budget are left of %d", n, modelBudget)
	}
}
