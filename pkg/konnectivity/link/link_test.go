package link

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink is a receiver that remembers everything. Unless slow, it consumes at once.
type sink struct {
	mu      sync.Mutex
	st      tunnel.Stream
	slow    bool
	got     []byte
	unread  int
	ended   bool
	closed  bool
	aborted error
	dialErr error
	dialed  chan struct{}
	wake    chan struct{}
}

func newSink() *sink { return &sink{dialed: make(chan struct{}), wake: make(chan struct{}, 1)} }

func (s *sink) Dialed(st tunnel.Stream, err error) {
	s.mu.Lock()
	s.st, s.dialErr = st, err
	s.mu.Unlock()
	close(s.dialed)
}

func (s *sink) Data(c *buf.Chunk) {
	s.mu.Lock()
	s.got = append(s.got, c.Bytes()...)
	n := c.Len()
	slow, st := s.slow, s.st
	if slow {
		s.unread += n
	}
	s.mu.Unlock()
	c.Release()
	if !slow {
		st.Consumed(n)
	}
}

func (s *sink) End()              { s.mu.Lock(); s.ended = true; s.mu.Unlock() }
func (s *sink) PeerClosed()       { s.mu.Lock(); s.closed = true; s.mu.Unlock() }
func (s *sink) Aborted(err error) { s.mu.Lock(); s.aborted = err; s.mu.Unlock(); s.Writable() }
func (s *sink) Writable() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *sink) state() (got int, ended, closed bool, aborted error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.got), s.ended, s.closed, s.aborted
}

// consume lets a slow sink go on.
func (s *sink) consume() {
	s.mu.Lock()
	n := s.unread
	s.unread = 0
	s.mu.Unlock()
	s.st.Consumed(n)
}

// sendAll sends as the window allows.
func (s *sink) sendAll(p []byte) bool {
	for len(p) > 0 {
		w := s.st.Window()
		if w == 0 {
			select {
			case <-s.wake:
				continue
			case <-time.After(time.Minute):
				return false
			}
		}
		c := buf.From(p[:min(len(p), w, buf.MaxPayload)])
		p = p[c.Len():]
		s.st.Send(c, true)
	}
	return true
}

// ends is a server and an agent over TCP on loopback.
type ends struct {
	server, agent *Link
	come          chan *sink
	wg            sync.WaitGroup
}

func newEnds(t testing.TB, cfg Config) *ends {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	e := &ends{come: make(chan *sink, 100)}
	acfg := cfg
	acfg.OnDial = func(st *Stream, address string) {
		s := newSink()
		s.st = st
		st.SetReceiver(s)
		if address == "refused" {
			st.Refuse(tunnel.Errorf(tunnel.CodeRefused, "no"))
			return
		}
		go func() { st.Accept(); e.come <- s }()
	}
	cfg.defaults()
	e.server, e.agent = New(a, cfg.Window, cfg), New(b, cfg.Window, acfg)
	e.wg.Go(func() { _ = e.server.Run() })
	e.wg.Go(func() { _ = e.agent.Run() })
	t.Cleanup(e.stop)
	return e
}

func (e *ends) stop() {
	e.server.Close()
	e.agent.Close()
	e.wg.Wait()
}

// open dials and returns both ends.
func (e *ends) open(t testing.TB) (server, agent *sink) {
	t.Helper()
	s := newSink()
	if _, err := e.server.Dial("x:1", s, true); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.dialed:
	case <-time.After(time.Minute):
		t.Fatal("dial was not answered")
	}
	return s, <-e.come
}

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

func TestTransfer(t *testing.T) {
	e := newEnds(t, Config{})
	var wg sync.WaitGroup
	for i := range 8 {
		s, a := e.open(t)
		data := make([]byte, 3<<20)
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(data)
		for _, dir := range [][2]*sink{{s, a}, {a, s}} {
			wg.Go(func() {
				if !dir[0].sendAll(data) {
					t.Error("no credit for 10 s")
					return
				}
				dir[0].st.CloseWrite()
				eventually(t, "the end", func() bool { _, ended, _, _ := dir[1].state(); return ended })
				if sha256.Sum256(dir[1].got) != sha256.Sum256(data) {
					t.Error("what came differs")
				}
			})
		}
	}
	wg.Wait()
	eventually(t, "streams are forgotten", func() bool { return e.server.Streams() == 0 && e.agent.Streams() == 0 })
}

func TestRefusedDial(t *testing.T) {
	e := newEnds(t, Config{})
	s := newSink()
	if _, err := e.server.Dial("refused", s, true); err != nil {
		t.Fatal(err)
	}
	<-s.dialed
	var de *tunnel.DialError
	if !errors.As(s.dialErr, &de) || de.Code != tunnel.CodeRefused || de.Message != "no" {
		t.Errorf("got %v", s.dialErr)
	}
	if e.server.Streams() != 0 {
		t.Error("stream is left")
	}
}

// TestWindowBoundsMemory: a receiver that does not consume gets its window and no
// byte more, and a stream beside it goes on.
func TestWindowBoundsMemory(t *testing.T) {
	e := newEnds(t, Config{Window: 128 << 10, MaxWindow: 128 << 10})
	s, a := e.open(t)
	a.mu.Lock()
	a.slow = true
	a.mu.Unlock()
	go s.sendAll(make([]byte, 1<<20))
	eventually(t, "window is full", func() bool { n, _, _, _ := a.state(); return n == 128<<10 })
	h, g := e.open(t)
	if !h.sendAll(make([]byte, 2<<20)) {
		t.Fatal("a stalled stream blocks another")
	}
	eventually(t, "healthy stream", func() bool { n, _, _, _ := g.state(); return n == 2<<20 })
	if n, _, _, _ := a.state(); n != 128<<10 {
		t.Errorf("stalled receiver holds %d bytes, its window is %d", n, 128<<10)
	}
	for range 20 {
		a.consume()
		time.Sleep(2 * time.Millisecond)
	}
	eventually(t, "the rest comes", func() bool { a.consume(); n, _, _, _ := a.state(); return n == 1<<20 })
}

func TestCloseOrder(t *testing.T) {
	e := newEnds(t, Config{})
	for name, end := range map[string]func(st tunnel.Stream){
		"fin":   func(st tunnel.Stream) { st.CloseWrite() },
		"close": func(st tunnel.Stream) { st.Close() },
		"reset": func(st tunnel.Stream) { st.Reset("gone", true) },
	} {
		s, a := e.open(t)
		data := bytes.Repeat([]byte{1}, 200_000)
		if !s.sendAll(data) {
			t.Fatal("no credit")
		}
		end(s.st)
		eventually(t, name+": the end", func() bool { _, ended, _, aborted := a.state(); return ended || aborted != nil })
		if n, _, closed, aborted := a.state(); n != len(data) || closed != (name == "close") || (aborted != nil) != (name == "reset") {
			t.Errorf("%s: %d bytes, closed %v, aborted %v", name, n, closed, aborted)
		}
	}
}

func TestLinkLossEndsStreams(t *testing.T) {
	e := newEnds(t, Config{})
	s, a := e.open(t)
	e.agent.Close()
	for _, x := range []*sink{s, a} {
		eventually(t, "stream is aborted", func() bool { _, _, _, err := x.state(); return errors.Is(err, tunnel.ErrLinkClosed) })
	}
	if _, err := e.server.Dial("x:1", newSink(), true); err == nil {
		t.Error("dial over a closed link")
	}
}

// raw is a peer that sends what it wants to a link.
func raw(t *testing.T, server bool, cfg Config) (net.Conn, *Link, chan error) {
	t.Helper()
	a, b := net.Pipe()
	if !server {
		cfg.OnDial = func(st *Stream, address string) {
			s := newSink()
			s.st, s.slow = st, true
			st.SetReceiver(s)
			if address != "pending" {
				st.Accept()
			}
		}
	}
	l := New(b, 1<<20, cfg)
	done := make(chan error, 1)
	go func() { done <- l.Run() }()
	go func() { _, _ = io.Copy(io.Discard, a) }()
	t.Cleanup(func() { a.Close(); l.Close() })
	return a, l, done
}

func frame(typ byte, id uint32, payload []byte) []byte {
	return appendFrame(nil, typ, id, string(payload))
}

// TestLyingPeer: what breaks one stream's rules ends that stream; what breaks the
// protocol ends the link.
func TestLyingPeer(t *testing.T) {
	dial, pending := frame(typeDial, 1, []byte("x:1")), frame(typeDial, 1, []byte("pending"))
	for name, c := range map[string]struct {
		in   [][]byte
		ends bool   // the link
		rule string // that is reported as broken
	}{
		"beyond the window":        {[][]byte{dial, frame(typeData, 1, make([]byte, 60000)), frame(typeData, 1, make([]byte, 60000)), frame(typeData, 1, make([]byte, 60000))}, false, "data beyond the window"},
		"data behind fin":          {[][]byte{dial, frame(typeFin, 1, nil), frame(typeData, 1, []byte("x"))}, false, "data behind the end"},
		"double fin":               {[][]byte{dial, frame(typeFin, 1, nil), frame(typeFin, 1, nil)}, false, "end is sent twice"},
		"double close":             {[][]byte{dial, frame(typeClose, 1, nil), frame(typeClose, 1, nil)}, false, "end is sent twice"},
		"credit overflow":          {[][]byte{dial, frame(typeCredit, 1, binary.BigEndian.AppendUint32(nil, 1<<31))}, false, "credit is too large"},
		"double fin, often":        {[][]byte{dial, frame(typeFin, 1, nil), frame(typeFin, 1, nil), frame(typeFin, 1, nil)}, false, "end is sent twice"},
		"data before the answer":   {[][]byte{pending, frame(typeData, 1, []byte("x"))}, false, "data before the dial was answered"},
		"fin before the answer":    {[][]byte{pending, frame(typeFin, 1, nil)}, false, "end or credit before the dial was answered"},
		"answer to a pending dial": {[][]byte{pending, frame(typeDialed, 1, nil)}, true, ""},
		"unknown type":             {[][]byte{dial, frame(200, 1, []byte("future"))}, false, ""},
		"reset twice":              {[][]byte{dial, frame(typeReset, 1, nil), frame(typeReset, 1, nil)}, false, ""},
		"data before dial":         {[][]byte{frame(typeData, 1, []byte("x"))}, true, ""},
		"number used again":        {[][]byte{dial, dial}, true, ""},
		"empty data":               {[][]byte{dial, frame(typeData, 1, nil)}, true, ""},
		"oversized control":        {[][]byte{{typeFin, 0xff, 0xff, 0xff, 0, 0, 0, 1}}, true, ""},
		"oversized data":           {[][]byte{dial, {typeData, 0xff, 0xff, 0xff, 0, 0, 0, 1}}, true, ""},
		"short credit":             {[][]byte{dial, frame(typeCredit, 1, []byte{1})}, true, ""},
		"short ping":               {[][]byte{frame(typePing, 0, []byte{1})}, true, ""},
		"dialed to an agent":       {[][]byte{dial, frame(typeDialed, 1, nil)}, true, ""},
		"hello again":              {[][]byte{frame(typeHello, 0, nil)}, true, ""},
		"unknown stream":           {[][]byte{dial, frame(typeFin, 77, nil)}, true, ""},
		"stream 0 data":            {[][]byte{frame(typeData, 0, []byte("x"))}, true, ""},
		"fin of ended stream":      {[][]byte{dial, frame(typeReset, 1, nil), frame(typeFin, 1, nil)}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			broken := make(chan string, 10)
			nc, l, done := raw(t, false, Config{Window: 128 << 10, OnViolation: func(rule string, first bool) {
				if first {
					broken <- rule
				}
			}})
			for _, f := range c.in {
				if _, err := nc.Write(f); err != nil {
					break
				}
			}
			if c.ends {
				select {
				case err := <-done:
					var pe *ProtocolError
					if !errors.As(err, &pe) {
						t.Errorf("link ended: %v", err)
					}
				case <-time.After(time.Minute):
					t.Error("link goes on")
				}
				return
			}
			for range 2 { // once the second is read, all before it has been dealt with
				if _, err := nc.Write(frame(typePing, 0, make([]byte, 8))); err != nil {
					t.Fatalf("link ended: %v", <-done)
				}
			}
			switch {
			case c.rule == "" && len(broken) > 0:
				t.Errorf("rule %q is said to be broken", <-broken)
			case c.rule != "" && (len(broken) != 1 || <-broken != c.rule):
				t.Errorf("broken rules are not one %q", c.rule)
			case c.rule != "" && !strings.HasPrefix(name, "double") && l.Streams() != 0:
				t.Error("the stream goes on")
			}
		})
	}
}

// modelEnd is one end of a stream of TestModel and what it has sent.
type modelEnd struct {
	*sink
	other *sink
	sent  int
	over  bool
	key   byte // makes the bytes of each end its own
}

func (m *modelEnd) byteAt(k int) byte { return byte(k) ^ m.key }

// step does something to an end as the schedule says.
func (m *modelEnd) step(rt *rapid.T) {
	switch rapid.IntRange(0, 5).Draw(rt, "op") {
	case 0, 1, 2:
		n := rapid.IntRange(1, 40_000).Draw(rt, "bytes")
		if w := m.st.Window(); !m.over && w >= n {
			p := make([]byte, n)
			for k := range p {
				p[k] = m.byteAt(m.sent + k)
			}
			m.st.Send(buf.From(p), rapid.Bool().Draw(rt, "wait"))
			m.sent += n
		}
	case 3:
		if m.slow {
			m.consume()
		}
	case 4:
		m.st.CloseWrite()
		m.over = true
	case 5:
		time.Sleep(time.Duration(rapid.IntRange(0, 300).Draw(rt, "us")) * time.Microsecond)
	}
}

// arrived checks that the other end has all that was sent, and the end behind it.
func (m *modelEnd) arrived(t *testing.T, rt *rapid.T) {
	o := m.other
	eventually(t, "all has arrived", func() bool {
		if o.slow {
			o.consume()
		}
		n, ended, _, err := o.state()
		return err != nil || ended && n == m.sent
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.aborted != nil {
		rt.Fatalf("aborted: %v", o.aborted)
	}
	for k, b := range o.got {
		if b != m.byteAt(k) {
			rt.Fatalf("byte %d is %d, want %d", k, b, m.byteAt(k))
		}
	}
}

// TestModel drives several streams of one link with random schedules and compares
// with what TCP would do: bytes arrive in order, complete and on their own stream,
// ends arrive behind them, a stream that is reset harms no other, and nothing is
// left.
func TestModel(t *testing.T) {
	e := newEnds(t, Config{Window: 64 << 10, MaxWindow: 256 << 10})
	rapid.Check(t, func(rt *rapid.T) {
		var all []*modelEnd
		for i := range rapid.IntRange(1, 5).Draw(rt, "streams") {
			s, a := e.open(t)
			s.slow, a.slow = rapid.Bool().Draw(rt, "slow server"), rapid.Bool().Draw(rt, "slow agent")
			all = append(all, &modelEnd{sink: s, other: a, key: byte(2 * i)}, &modelEnd{sink: a, other: s, key: byte(2*i + 1)})
		}
		for range rapid.IntRange(1, 30*len(all)/2).Draw(rt, "steps") {
			all[rapid.IntRange(0, len(all)-1).Draw(rt, "end")].step(rt)
		}
		if len(all) > 2 && rapid.Bool().Draw(rt, "reset") {
			all[0].st.Reset("by the test", false)
			eventually(t, "the other end is told", func() bool { _, ended, _, err := all[1].state(); return err != nil || ended })
			all = all[2:]
		}
		for _, m := range all {
			m.st.CloseWrite()
		}
		for _, m := range all {
			m.arrived(t, rt)
		}
		eventually(t, "streams are forgotten", func() bool { return e.server.Streams() == 0 && e.agent.Streams() == 0 })
	})
}

func TestHandshake(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	want := Hello{AgentID: "a", Identifiers: "host=x", Token: "secret", Window: 1 << 18, Have: "one,two"}
	go func() {
		got, err := ReadHello(b)
		if err != nil || got != want {
			t.Errorf("got %+v, %v", got, err)
		}
		_ = SendWelcome(b, Welcome{ServerID: "srv", ServerCount: 3, Window: 1 << 17, Links: 2})
	}()
	w, err := SendHello(a, want)
	if err != nil || w != (Welcome{ServerID: "srv", ServerCount: 3, Window: 1 << 17, Links: 2}) {
		t.Errorf("got %+v, %v", w, err)
	}
}

func FuzzLink(f *testing.F) {
	f.Add(append(frame(typeDial, 1, []byte("x:1")), frame(typeData, 1, []byte("hello"))...))
	f.Add(frame(typePing, 0, make([]byte, 8)))
	f.Fuzz(func(t *testing.T, in []byte) {
		a, b := net.Pipe()
		l := New(b, 1<<20, Config{OnDial: func(st *Stream, _ string) {
			s := newSink()
			s.st = st
			st.SetReceiver(s)
			go st.Accept()
		}})
		done := make(chan struct{})
		go func() { defer close(done); _ = l.Run() }()
		go func() { _, _ = io.Copy(io.Discard, a) }()
		_ = a.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = a.Write(in)
		a.Close()
		<-done
		if l.Streams() != 0 {
			t.Error("streams are left")
		}
	})
}

func FuzzFields(f *testing.F) {
	f.Add(appendFields("a", "b"))
	f.Fuzz(func(_ *testing.T, in []byte) { _, _ = parseFields(in) })
}
