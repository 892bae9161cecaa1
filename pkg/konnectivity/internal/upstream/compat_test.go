// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/membudget"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/upstream"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

func TestMain(m *testing.M) { testutil.VerifyNoLeaks(m) }

// pair is a server's and an agent's session over loopback.
type pair struct {
	server, agent *upstream.Session
	hb, ha        *h2.Conn
	come          chan *sinktest.Sink
	slow          bool       // receivers of new connections are slow
	raw           *h2.Stream // the server's stream, to send what a session does not
	wg            sync.WaitGroup
}

func newPair(t testing.TB, scfg, acfg upstream.Config) *pair {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return newPairOn(t, near, far, scfg, acfg)
}

// newPairOn creates a pair on the two ends of a connection.
func newPairOn(t testing.TB, near, far net.Conn, scfg, acfg upstream.Config) *pair {
	t.Helper()
	p := &pair{come: make(chan *sinktest.Sink, 100)}
	acfg.OnDial = func(c *upstream.Conn, address string) {
		e := sinktest.NewSink(c, p.slow)
		c.SetReceiver(e)
		if address == "pending" {
			return
		}
		if address == "refused" {
			c.Refuse(tunnel.Errorf(tunnel.CodeRefused, "dial: connection refused"))
			return
		}
		c.Accept()
		p.come <- e
	}
	ready := make(chan struct{})
	p.hb = h2.NewServer(far, h2.Config{StreamWindow: 1<<20 + 1000, OnStream: func(st *h2.Stream, _ []h2.Field) {
		p.server = upstream.New(st, true, scfg)
		p.raw = st
		st.SetHandler(p.server)
		st.WriteHeaders([]h2.Field{{Name: ":status", Value: "200"}})
		close(ready)
	}})
	p.ha = h2.NewClient(near, h2.Config{StreamWindow: 1<<20 + 1000})
	p.agent = upstream.New(nil, false, acfg)
	p.agent.SetStream(p.ha.Open([]h2.Field{{Name: ":method", Value: "POST"}, {Name: ":path", Value: "/"}}, p.agent))
	p.wg.Go(func() { _ = p.hb.Serve() })
	p.wg.Go(func() { _ = p.ha.Serve() })
	<-ready
	t.Cleanup(p.close)
	return p
}

func (p *pair) close() { p.hb.Close(); p.ha.Close(); p.wg.Wait() }

// open dials and returns both ends.
func (p *pair) open(t testing.TB, slow bool) (server, agent *sinktest.Sink) {
	t.Helper()
	server = sinktest.NewSink(nil, slow)
	if _, err := p.server.Dial("x:1", server); err != nil {
		t.Fatal(err)
	}
	select {
	case <-server.Answered:
	case <-time.After(time.Minute):
		t.Fatal("the dial is not answered")
	}
	return server, <-p.come
}

// send sends n bytes, whose values count up from first.
func send(t testing.TB, e *sinktest.Sink, n int, first byte) {
	t.Helper()
	p := make([]byte, n)
	for i := range p {
		p[i] = first + byte(i)
	}
	if !e.SendAll(p) {
		t.Error("the window stays shut")
	}
}

// TestCloseBehindData checks that a close does not overtake the data sent before it.
func TestCloseBehindData(t *testing.T) {
	p := newPair(t, upstream.Config{}, upstream.Config{})
	for _, byAgent := range []bool{false, true} {
		from, to := p.open(t, false)
		if byAgent {
			from, to = to, from
		}
		send(t, from, 1<<20, 0)
		from.Stream().Close()
		sinktest.Eventually(t, "the end", func() bool { _, ended, _, err := to.State(); return ended || err != nil })
		if n, _, _, err := to.State(); n != 1<<20 || err != nil {
			t.Errorf("%d of %d bytes came before the end, %v", n, 1<<20, err)
		}
	}
}

// TestCloseMeetsData checks that the data that a destination sent before it closed
// arrives, followed by an orderly end, although data for the destination arrives while
// its last bytes are being sent.
func TestCloseMeetsData(t *testing.T) {
	leaving, queued, late := make(chan struct{}, 2), make(chan struct{}), make(chan struct{})
	count := 0
	p := newPair(t, upstream.Config{}, upstream.Config{
		Observe: func(received bool, typ wire.Type) {
			if received || typ != wire.Data {
				return
			}
			leaving <- struct{}{} // it is between the queue and the stream
			if count++; count == 1 {
				<-queued
			} else {
				<-late
			}
		},
		OnStray: func(wire.Type, int64, bool) { time.AfterFunc(50*time.Millisecond, func() { close(late) }) },
	})
	server, agent := p.open(t, false)
	go agent.Stream().Send(buffer.From(make([]byte, 100)), false)
	<-leaving
	agent.Stream().Send(buffer.From(make([]byte, 200)), false)
	agent.Stream().Close()
	close(queued)
	<-leaving
	send(t, server, 10, 0)
	sinktest.Eventually(t, "the end", func() bool { _, ended, _, err := server.State(); return ended || err != nil })
	if n, _, _, err := server.State(); n != 300 || err != nil {
		t.Errorf("%d of %d bytes came before the end, %v", n, 300, err)
	}
}

// TestDialErrors checks that the session derives the kind of failure from the error
// text, and that a dial that is given up ends at the agent.
func TestDialErrors(t *testing.T) {
	p := newPair(t, upstream.Config{}, upstream.Config{})
	e := sinktest.NewSink(nil, false)
	if _, err := p.server.Dial("refused", e); err != nil {
		t.Fatal(err)
	}
	<-e.Answered
	var de *tunnel.DialError
	if !errors.As(e.DialErr(), &de) || de.Code != tunnel.CodeRefused {
		t.Errorf("got %v", e.DialErr())
	}
	sinktest.Eventually(t, "nothing is left", func() bool { return p.server.Len() == 0 && p.agent.Len() == 0 })
}

// TestOverflow checks that a receiver that exceeds ConnBuffer loses its connection, that
// both ends are notified, and that another connection continues. With Pause, the whole
// stream waits instead.
func TestOverflow(t *testing.T) {
	overflows := make(chan struct{}, 10)
	p := newPair(t, upstream.Config{ConnBuffer: 1 << 20, OnOverflow: func() { overflows <- struct{}{} }}, upstream.Config{})
	slow, source := p.open(t, true)
	healthy, other := p.open(t, false)
	go send(t, source, 4<<20, 0)
	<-overflows
	sinktest.Eventually(t, "the receiver is reset", func() bool {
		_, _, _, err := slow.State()
		return errors.Is(err, upstream.ErrOverflow) && errors.Is(err, tunnel.ErrEvicted)
	})
	sinktest.Eventually(t, "the source sees the end", func() bool { _, ended, _, err := source.State(); return ended || err != nil })
	send(t, other, 4<<20, 0)
	sinktest.Eventually(t, "the other connection goes on", func() bool { n, _, _, _ := healthy.State(); return n == 4<<20 })
	if n, _, _, _ := slow.State(); n > 1<<20 {
		t.Errorf("%d bytes were given to a receiver that may hold %d", n, 1<<20)
	}
	t.Run("pause", func(t *testing.T) {
		p := newPair(t, upstream.Config{ConnBuffer: 1 << 20, Pause: true}, upstream.Config{})
		slow, source := p.open(t, true)
		done := make(chan struct{})
		go func() { send(t, source, 3<<20, 0); close(done) }()
		sinktest.Eventually(t, "the window is used", func() bool { n, _, _, _ := slow.State(); return n > 900<<10 })
		for n := 0; n < 3<<20; {
			got, _, _, err := slow.State()
			if err != nil {
				t.Fatal(err)
			}
			slow.Stream().Consumed(got - n)
			n = got
			time.Sleep(time.Millisecond)
		}
		<-done
	})
}

// TestAccount checks that what receivers hold stays on the account until they pass it
// on, even when the connection has ended before.
func TestAccount(t *testing.T) {
	p := newPair(t, upstream.Config{}, upstream.Config{})
	book := membudget.New(membudget.Config{})
	account := book.Join("agent", p.server)
	p.server.SetAccount(account)
	slow, source := p.open(t, true)
	send(t, source, 300_000, 0)
	sinktest.Eventually(t, "it is held", func() bool { return account.Held() == 300_000 })
	if all := p.server.Holdings(); len(all) != 1 || all[0].Bytes != 300_000 {
		t.Errorf("holdings %+v", all)
	}
	source.Stream().Close()
	sinktest.Eventually(t, "the end", func() bool { _, ended, _, _ := slow.State(); return ended })
	if all := p.server.Holdings(); len(all) != 1 || account.Held() != 300_000 {
		t.Errorf("after the end: %d held, holdings %+v", account.Held(), all)
	}
	slow.Stream().Consumed(100_000)
	if account.Held() != 200_000 {
		t.Errorf("%d held, want 200000", account.Held())
	}
	slow.Stream().Consumed(tunnel.All)
	if account.Held() != 0 || len(p.server.Holdings()) != 0 {
		t.Errorf("%d held at last", account.Held())
	}
	again, source := p.open(t, true)
	send(t, source, 100_000, 0)
	sinktest.Eventually(t, "it is held", func() bool { return account.Held() == 100_000 })
	p.ha.Close()
	sinktest.Eventually(t, "the link's end", func() bool { _, _, _, err := again.State(); return err != nil })
	sinktest.Eventually(t, "nothing is held", func() bool { return account.Held() == 0 })
}

// TestDialNumberUsedTwice checks that an agent ignores a dial with the number of a
// pending dial, counts each such dial and reports it once, and that the pending dial and
// other connections continue.
func TestDialNumberUsedTwice(t *testing.T) {
	bad := make(chan bool, 10)
	p := newPair(t, upstream.Config{}, upstream.Config{OnBad: func(_ error, first bool) { bad <- first }})
	for range 3 {
		p.raw.SendControl(wire.AppendMessage(nil, &wire.Packet{Payload: wire.DialReq, Protocol: "tcp", Address: "pending", Random: 7}))
	}
	s, a := p.open(t, false)
	send(t, s, 1000, 0)
	sinktest.Eventually(t, "another connection goes on", func() bool { n, _, _, _ := a.State(); return n == 1000 })
	if len(bad) != 2 || !<-bad || <-bad {
		t.Errorf("reported %d times, want 2, the first as such", len(bad))
	}
	if n := p.agent.Len(); n != 3 {
		t.Errorf("%d connections and dials are held, want 3: two connections, one of them not answered", n)
	}
}
