package compat_test

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/compat"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/ledger"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// end is a receiver that remembers everything. Unless slow, it consumes at once.
type end struct {
	mu      sync.Mutex
	st      tunnel.Stream
	slow    bool
	got     []byte
	ended   bool
	aborted error
	dialErr error
	dialed  chan struct{}
}

func newEnd(slow bool) *end { return &end{slow: slow, dialed: make(chan struct{})} }

func (e *end) Dialed(st tunnel.Stream, err error) {
	e.mu.Lock()
	e.st, e.dialErr = st, err
	e.mu.Unlock()
	close(e.dialed)
}

func (e *end) Data(c *buf.Chunk) {
	e.mu.Lock()
	e.got = append(e.got, c.Bytes()...)
	n, slow, st := c.Len(), e.slow, e.st
	e.mu.Unlock()
	c.Release()
	if !slow {
		st.Consumed(n)
	}
}

func (e *end) End()              { e.mu.Lock(); e.ended = true; e.mu.Unlock() }
func (e *end) Aborted(err error) { e.mu.Lock(); e.aborted = err; e.mu.Unlock() }
func (e *end) Writable()         {}

func (e *end) state() (got int, ended bool, aborted error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.got), e.ended, e.aborted
}

// send sends n bytes as the window allows.
func (e *end) send(t testing.TB, n int, first byte) {
	t.Helper()
	for k := 0; k < n; {
		w := e.st.Window()
		if w == 0 {
			time.Sleep(time.Millisecond)
			continue
		}
		p := make([]byte, min(n-k, w, buf.MaxPayload))
		for i := range p {
			p[i] = first + byte(k+i)
		}
		e.st.Send(buf.From(p), true)
		k += len(p)
	}
}

// pair is a server's and an agent's session over loopback.
type pair struct {
	server, agent *compat.Session
	hb, ha        *h2.Conn
	come          chan *end
	slow          bool       // ends that come
	raw           *h2.Stream // the server's, for what a session does not send
	wg            sync.WaitGroup
}

func newPair(t testing.TB, scfg, acfg compat.Config) *pair {
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
	p := &pair{come: make(chan *end, 100)}
	acfg.OnDial = func(c *compat.Conn, address string) {
		e := newEnd(p.slow)
		e.st = c
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
	p.hb = h2.NewServer(far, h2.Config{StreamWindow: 1 << 20, OnStream: func(st *h2.Stream, _ []h2.Field) {
		p.server = compat.New(st, true, scfg)
		p.raw = st
		st.SetHandler(p.server)
		st.WriteHeaders([]h2.Field{{Name: ":status", Value: "200"}})
		close(ready)
	}})
	p.ha = h2.NewClient(near, h2.Config{StreamWindow: 1 << 20})
	p.agent = compat.New(nil, false, acfg)
	p.agent.SetStream(p.ha.Open([]h2.Field{{Name: ":method", Value: "POST"}, {Name: ":path", Value: "/"}}, p.agent))
	p.wg.Go(func() { _ = p.hb.Serve() })
	p.wg.Go(func() { _ = p.ha.Serve() })
	<-ready
	t.Cleanup(func() { p.hb.Close(); p.ha.Close(); p.wg.Wait() })
	return p
}

// open dials and returns both ends.
func (p *pair) open(t testing.TB, slow bool) (server, agent *end) {
	t.Helper()
	server = newEnd(slow)
	if _, err := p.server.Dial("x:1", server); err != nil {
		t.Fatal(err)
	}
	select {
	case <-server.dialed:
	case <-time.After(time.Minute):
		t.Fatal("the dial is not answered")
	}
	return server, <-p.come
}

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for over := time.Now().Add(time.Minute); time.Now().Before(over); time.Sleep(time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

// TestModel: whatever the schedule, bytes arrive in order and complete on their own
// connection, the end behind them, and nothing is left.
func TestModel(t *testing.T) {
	p := newPair(t, compat.Config{}, compat.Config{})
	rapid.Check(t, func(rt *rapid.T) {
		type half struct {
			from, to *end
			sent     int
			first    byte
		}
		var all []*half
		for i := range rapid.IntRange(1, 4).Draw(rt, "connections") {
			s, a := p.open(t, false)
			all = append(all, &half{from: s, to: a, first: byte(2 * i)}, &half{from: a, to: s, first: byte(2*i + 1)})
		}
		for range rapid.IntRange(0, 40).Draw(rt, "steps") {
			h := all[rapid.IntRange(0, len(all)-1).Draw(rt, "half")]
			n := rapid.IntRange(1, 100_000).Draw(rt, "bytes")
			h.from.send(t, n, h.first+byte(h.sent))
			h.sent += n
		}
		for i, h := range all {
			eventually(t, "all has arrived", func() bool { n, _, _ := h.to.state(); return n == h.sent })
			for k, b := range h.to.got {
				if b != h.first+byte(k) {
					rt.Fatalf("half %d: byte %d is %d", i, k, b)
				}
			}
		}
		for i := 0; i < len(all); i += 2 {
			all[i+rapid.IntRange(0, 1).Draw(rt, "who closes")].from.st.Close()
		}
		eventually(t, "nothing is left", func() bool { return p.server.Len() == 0 && p.agent.Len() == 0 })
	})
}

// TestCloseBehindData: a close does not overtake what was sent.
func TestCloseBehindData(t *testing.T) {
	p := newPair(t, compat.Config{}, compat.Config{})
	for _, byAgent := range []bool{false, true} {
		from, to := p.open(t, false)
		if byAgent {
			from, to = to, from
		}
		from.send(t, 1<<20, 0)
		from.st.Close()
		eventually(t, "the end", func() bool { _, ended, err := to.state(); return ended || err != nil })
		if n, _, err := to.state(); n != 1<<20 || err != nil {
			t.Errorf("%d of %d bytes came before the end, %v", n, 1<<20, err)
		}
	}
}

// TestDialErrors: the kind of failure is told by the words, and a dial that is given
// up ends at the agent.
func TestDialErrors(t *testing.T) {
	p := newPair(t, compat.Config{}, compat.Config{})
	e := newEnd(false)
	if _, err := p.server.Dial("refused", e); err != nil {
		t.Fatal(err)
	}
	<-e.dialed
	var de *tunnel.DialError
	if !errors.As(e.dialErr, &de) || de.Code != tunnel.CodeRefused {
		t.Errorf("got %v", e.dialErr)
	}
	eventually(t, "nothing is left", func() bool { return p.server.Len() == 0 && p.agent.Len() == 0 })
}

// TestOverflow: a receiver that holds more than it may loses its connection, which
// both ends are told; another goes on. With Pause it is the stream that waits.
func TestOverflow(t *testing.T) {
	overflows := make(chan struct{}, 10)
	p := newPair(t, compat.Config{ConnLimit: 1 << 20, OnOverflow: func() { overflows <- struct{}{} }}, compat.Config{})
	slow, source := p.open(t, true)
	healthy, other := p.open(t, false)
	go source.send(t, 4<<20, 0)
	<-overflows
	eventually(t, "the receiver is told", func() bool {
		_, _, err := slow.state()
		return errors.Is(err, compat.ErrOverflow) && errors.Is(err, tunnel.ErrEvicted)
	})
	eventually(t, "the source is told", func() bool { _, ended, err := source.state(); return ended || err != nil })
	other.send(t, 4<<20, 0)
	eventually(t, "the other connection goes on", func() bool { n, _, _ := healthy.state(); return n == 4<<20 })
	if n, _, _ := slow.state(); n > 1<<20 {
		t.Errorf("%d bytes were given to a receiver that may hold %d", n, 1<<20)
	}
	t.Run("pause", func(t *testing.T) {
		p := newPair(t, compat.Config{ConnLimit: 1 << 20, Pause: true}, compat.Config{})
		slow, source := p.open(t, true)
		done := make(chan struct{})
		go func() { source.send(t, 3<<20, 0); close(done) }()
		eventually(t, "the window is used", func() bool { n, _, _ := slow.state(); return n > 900<<10 })
		for n := 0; n < 3<<20; {
			got, _, err := slow.state()
			if err != nil {
				t.Fatal(err)
			}
			slow.st.Consumed(got - n)
			n = got
			time.Sleep(time.Millisecond)
		}
		<-done
	})
}

// TestAccount: what receivers hold is on the account until they pass it on, also when
// the connection is over before.
func TestAccount(t *testing.T) {
	p := newPair(t, compat.Config{}, compat.Config{})
	book := ledger.New(ledger.Config{})
	account := book.Join("agent", p.server)
	p.server.Bill(account)
	slow, source := p.open(t, true)
	source.send(t, 300_000, 0)
	eventually(t, "it is held", func() bool { return account.Held() == 300_000 })
	if all := p.server.Holdings(); len(all) != 1 || all[0].Bytes != 300_000 {
		t.Errorf("holdings %+v", all)
	}
	source.st.Close()
	eventually(t, "the end", func() bool { _, ended, _ := slow.state(); return ended })
	if all := p.server.Holdings(); len(all) != 1 || account.Held() != 300_000 {
		t.Errorf("after the end: %d held, holdings %+v", account.Held(), all)
	}
	slow.st.Consumed(100_000)
	if account.Held() != 200_000 {
		t.Errorf("%d held, want 200000", account.Held())
	}
	slow.st.Consumed(tunnel.All)
	if account.Held() != 0 || len(p.server.Holdings()) != 0 {
		t.Errorf("%d held at last", account.Held())
	}
	again, source := p.open(t, true)
	source.send(t, 100_000, 0)
	eventually(t, "it is held", func() bool { return account.Held() == 100_000 })
	p.ha.Close()
	eventually(t, "the link's end", func() bool { _, _, err := again.state(); return err != nil })
	eventually(t, "nothing is held", func() bool { return account.Held() == 0 })
}

// TestDialNumberUsedTwice: a dial with the number of one that is pending is left out,
// counted each time and said once; the pending one and others go on.
func TestDialNumberUsedTwice(t *testing.T) {
	bad := make(chan bool, 10)
	p := newPair(t, compat.Config{}, compat.Config{OnBad: func(_ error, first bool) { bad <- first }})
	for range 3 {
		p.raw.SendControl(wire.AppendMessage(nil, &wire.Packet{Payload: wire.DialReq, Protocol: "tcp", Address: "pending", Random: 7}))
	}
	s, a := p.open(t, false)
	s.send(t, 1000, 0)
	eventually(t, "another connection goes on", func() bool { n, _, _ := a.state(); return n == 1000 })
	if len(bad) != 2 || !<-bad || <-bad {
		t.Errorf("reported %d times, want 2, the first as such", len(bad))
	}
	if n := p.agent.Len(); n != 3 {
		t.Errorf("%d connections and dials are held, want 3: two connections, one of them not answered", n)
	}
}
