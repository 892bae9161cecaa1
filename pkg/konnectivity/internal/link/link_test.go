// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
)

func TestMain(m *testing.M) { testutil.VerifyNoLeaks(m) }

// ends is a server and an agent over TCP on loopback.
type ends struct {
	server, agent *Link
	come          chan *sinktest.Sink
	wg            sync.WaitGroup
}

func newEnds(t testing.TB, cfg Config) *ends {
	t.Helper()
	plain := func(nc net.Conn) net.Conn { return nc }
	return newEndsOver(t, cfg, plain, plain)
}

// newEndsOver is newEnds with what lies between the links and their sockets.
func newEndsOver(t testing.TB, cfg Config, overServer, overAgent func(net.Conn) net.Conn) *ends {
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
	e := &ends{come: make(chan *sinktest.Sink, 100)}
	acfg := cfg
	acfg.OnDial = func(st *Stream, address string) {
		s := sinktest.NewSink(st, false)
		st.SetReceiver(s)
		if address == "refused" {
			st.Refuse(tunnel.Errorf(tunnel.CodeRefused, "no"))
			return
		}
		go func() { st.Accept(); e.come <- s }()
	}
	cfg.defaults()
	e.server, e.agent = New(overServer(a), cfg.Window, cfg), New(overAgent(b), cfg.Window, acfg)
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
func (e *ends) open(t testing.TB) (server, agent *sinktest.Sink) {
	t.Helper()
	s := sinktest.NewSink(nil, false)
	if _, err := e.server.Dial("x:1", s, true); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Answered:
	case <-time.After(time.Minute):
		t.Fatal("dial was not answered")
	}
	return s, <-e.come
}

func TestTransfer(t *testing.T) {
	e := newEnds(t, Config{})
	var wg sync.WaitGroup
	for i := range 8 {
		s, a := e.open(t)
		data := make([]byte, 3<<20)
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(data)
		for _, dir := range [][2]*sinktest.Sink{{s, a}, {a, s}} {
			wg.Go(func() {
				if !dir[0].SendAll(data) {
					t.Error("no credit")
					return
				}
				dir[0].Stream().CloseWrite()
				sinktest.Eventually(t, "the end", func() bool { _, ended, _, _ := dir[1].State(); return ended })
				if sha256.Sum256(dir[1].Got()) != sha256.Sum256(data) {
					t.Error("what came differs")
				}
			})
		}
	}
	wg.Wait()
	sinktest.Eventually(t, "streams are forgotten", func() bool { return e.server.Streams() == 0 && e.agent.Streams() == 0 })
}

func TestRefusedDial(t *testing.T) {
	e := newEnds(t, Config{})
	s := sinktest.NewSink(nil, false)
	if _, err := e.server.Dial("refused", s, true); err != nil {
		t.Fatal(err)
	}
	<-s.Answered
	var de *tunnel.DialError
	if !errors.As(s.DialErr(), &de) || de.Code != tunnel.CodeRefused || de.Message != "no" {
		t.Errorf("got %v", s.DialErr())
	}
	if e.server.Streams() != 0 {
		t.Error("stream is left")
	}
}

// TestWindowBoundsMemory: a receiver that does not consume gets its window and no
// byte more, and a stream next to it goes on.
func TestWindowBoundsMemory(t *testing.T) {
	e := newEnds(t, Config{Window: 128 << 10, MaxWindow: 128 << 10})
	s, a := e.open(t)
	a.SetSlow(true)
	go s.SendAll(make([]byte, 1<<20))
	sinktest.Eventually(t, "window is full", func() bool { n, _, _, _ := a.State(); return n == 128<<10 })
	h, g := e.open(t)
	if !h.SendAll(make([]byte, 2<<20)) {
		t.Fatal("a stalled stream blocks another")
	}
	sinktest.Eventually(t, "healthy stream", func() bool { n, _, _, _ := g.State(); return n == 2<<20 })
	if n, _, _, _ := a.State(); n != 128<<10 {
		t.Errorf("stalled receiver holds %d bytes, its window is %d", n, 128<<10)
	}
	for range 20 {
		a.Consume()
		time.Sleep(2 * time.Millisecond)
	}
	sinktest.Eventually(t, "the rest comes", func() bool { a.Consume(); n, _, _, _ := a.State(); return n == 1<<20 })
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
		if !s.SendAll(data) {
			t.Fatal("no credit")
		}
		end(s.Stream())
		sinktest.Eventually(t, name+": the end", func() bool { _, ended, _, aborted := a.State(); return ended || aborted != nil })
		if n, _, closed, aborted := a.State(); n != len(data) || closed != (name == "close") || (aborted != nil) != (name == "reset") {
			t.Errorf("%s: %d bytes, closed %v, aborted %v", name, n, closed, aborted)
		}
	}
}

func TestLinkLossEndsStreams(t *testing.T) {
	e := newEnds(t, Config{})
	s, a := e.open(t)
	e.agent.Close()
	for _, x := range []*sinktest.Sink{s, a} {
		sinktest.Eventually(t, "stream is aborted", func() bool { _, _, _, err := x.State(); return errors.Is(err, tunnel.ErrLinkClosed) })
	}
	if _, err := e.server.Dial("x:1", sinktest.NewSink(nil, false), true); err == nil {
		t.Error("dial over a closed link")
	}
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

// tunneled is a connection over another, as TLS is.
type tunneled struct{ net.Conn }

func (c tunneled) NetConn() net.Conn { return c.Conn }

// TestSlowFrameIsLife checks that a peer from which parts of a frame arrive does
// not count as silent.
func TestSlowFrameIsLife(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	defer near.Close()
	l := New(tunneled{NewBatchConn(near, nil)}, 1<<20, Config{})
	long := int64(-time.Hour)
	l.lastRecv.Store(long)
	l.life.moved = long
	go func() { _, _ = far.Write([]byte{typeData}) }()
	if _, err := l.nc.(tunneled).Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	l.tick(false)
	select {
	case <-l.Done():
		t.Fatal("a link is given up though bytes arrive")
	default:
	}
	l.lastRecv.Store(long)
	l.tick(false)
	select {
	case <-l.Done():
	default:
		t.Error("a silent link is kept")
	}
}
