package h2

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/wire"
)

const (
	modelWindow = 60_000
	modelFirst  = 16_000
	modelBudget = 3 * (modelWindow - modelFirst)
	// controlByte stands for a control message in what an end has sent or got; data
	// are smaller values, different ones for each tunnelled connection.
	controlByte = 255
)

// modelEnd is one end of a stream of TestModel: what it has sent, and what has come.
type modelEnd struct {
	st    *Stream
	other *modelEnd
	dec   wire.StreamDecoder

	// Used by the schedule only.
	said     []byte
	handed   int // bytes of data for which Sent is to be called
	finished bool
	dropped  bool
	reset    bool // by this end, whose handler is not told

	mu     sync.Mutex
	got    []byte
	unread int
	slow   bool
	sent   int
	ended  bool
	closed int
	err    error
	wrong  string // what must not happen
}

func (m *modelEnd) Headers([]Field) {}

func (m *modelEnd) Data(p []byte) error {
	m.mu.Lock()
	if m.ended || m.closed > 0 {
		m.wrong = "data behind the end"
	}
	err := m.dec.Feed(p, m)
	m.unread += len(p)
	m.mu.Unlock()
	m.consume(false)
	return err
}

func (m *modelEnd) HandlePacket(*wire.Packet) error { m.got = append(m.got, controlByte); return nil }

func (m *modelEnd) HandleData(_ int64, piece []byte) error {
	m.got = append(m.got, piece...)
	return nil
}

func (m *modelEnd) End() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended || m.closed > 0 {
		m.wrong = "an end behind the end"
	}
	if !m.dec.Idle() {
		m.wrong = "an end within a message"
	}
	m.ended = true
}

func (m *modelEnd) Closed(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed++
	m.err = err
}

// Sent has a lock of its own, in effect: no other method of Conn is called under mu.
func (m *modelEnd) Sent(n int) {
	m.mu.Lock()
	m.sent += n
	m.mu.Unlock()
}

// consume gives back what has come, unless the end is slow.
func (m *modelEnd) consume(also bool) {
	m.mu.Lock()
	n := m.unread
	if m.slow && !also {
		n = 0
	}
	m.unread -= n
	m.mu.Unlock()
	if n > 0 {
		m.st.Consumed(n)
	}
}

func (m *modelEnd) hasten() {
	m.mu.Lock()
	m.slow = false
	m.mu.Unlock()
	m.consume(true)
}

// over tells whether the stream has ended there.
func (m *modelEnd) over() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed > 0
}

// step does something to an end as the schedule says.
func (m *modelEnd) step(rt *rapid.T) {
	quiet := m.finished || m.dropped // nothing may come behind
	switch op := rapid.IntRange(0, 9).Draw(rt, "op"); {
	case op <= 3 && !quiet:
		id := rapid.Int64Range(1, 2).Draw(rt, "connection")
		p := make([]byte, rapid.IntRange(1, buf.MaxPayload).Draw(rt, "bytes"))
		for i := range p {
			p[i] = byte(id)*100 + byte((len(m.said)+i)%100)/2 // below controlByte
		}
		if m.st.SendData(id, buf.From(p), m) {
			m.said = append(m.said, p...)
			m.handed += len(p)
		}
	case op == 4 && !quiet:
		msg := wire.AppendMessage(nil, &wire.Packet{Payload: wire.CloseRsp, ConnID: 1, Error: "by the test"})
		m.said = append(m.said, controlByte)
		if rapid.Bool().Draw(rt, "at once") {
			m.st.SendControl(msg)
		} else {
			m.st.QueueControl(msg)
		}
	case op == 5:
		m.consume(true)
	case op == 6:
		m.st.Flush()
		m.st.Conn().Ping(time.Now())
	case op == 7 && rapid.IntRange(0, 3).Draw(rt, "finish") == 0:
		m.finished = true
		m.st.Finish([]Field{{"grpc-status", "0"}})
	case op == 8 && !quiet && rapid.IntRange(0, 3).Draw(rt, "drop") == 0:
		m.dropped = true
		m.st.Drop(m)
	default:
		time.Sleep(time.Duration(rapid.IntRange(0, 200).Draw(rt, "us")) * time.Microsecond)
	}
}

// heard checks what came against what the other end said. All of it, if the stream
// has ended in an orderly way; else a beginning.
func (m *modelEnd) heard(rt *rapid.T, orderly bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	said := m.other.said
	switch {
	case m.wrong != "":
		rt.Fatal(m.wrong)
	case m.closed != 1 && !(m.reset && m.closed == 0):
		rt.Fatalf("it was closed %d times", m.closed)
	case orderly && (!m.ended || m.err != nil):
		rt.Fatalf("end: %v, closed with %v", m.ended, m.err)
	case m.other.dropped: // control messages stay, and of the data a beginning
		said = bytes.ReplaceAll(said, []byte{controlByte}, nil)
		if got := bytes.ReplaceAll(m.got, []byte{controlByte}, nil); !bytes.HasPrefix(said, got) {
			rt.Fatalf("%d bytes of data came that are no beginning of the %d that were sent", len(got), len(said))
		}
		if orderly && bytes.Count(m.got, []byte{controlByte}) != bytes.Count(m.other.said, []byte{controlByte}) {
			rt.Fatal("control messages were dropped")
		}
	case orderly && !bytes.Equal(m.got, said):
		rt.Fatalf("%d bytes and messages came, %d were sent", len(m.got), len(said))
	case !bytes.HasPrefix(said, m.got):
		rt.Fatalf("%d bytes and messages came that are no beginning of the %d that were sent", len(m.got), len(said))
	}
}

// settled checks that all that an end has handed over was accounted for.
func (m *modelEnd) settled(rt *rapid.T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sent != m.handed {
		rt.Fatalf("%d of %d bytes were reported as gone", m.sent, m.handed)
	}
}

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
	for _, c := range []net.Conn{a, b} { // small ones, so that writes wait
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
// sent before an orderly end arrives, in order and on its own stream, and the end behind
// it; a stream that is reset, or the end of the connection, cuts at some place and
// harms no other stream; each handler is told once that it is over; windows are kept
// to; and nothing is left.
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
			eventually(rt, "a handler is told that it is over", func() bool { m.consume(true); return m.reset || m.over() })
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

// frugal checks that neither end sends more than the connection's window lets it; the
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

// end ends the connections and checks that nothing is left of the streams.
func (p *modelPair) end(rt *rapid.T, killed bool) {
	eventually(rt, "streams are forgotten", func() bool { return p.client.Streams() == 0 && p.server.Streams() == 0 })
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

func eventually(rt *rapid.T, what string, f func() bool) {
	rt.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			rt.Fatalf("never: %s", what)
		}
	}
}
