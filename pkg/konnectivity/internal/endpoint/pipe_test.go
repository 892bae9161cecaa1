// SPDX-License-Identifier: Apache-2.0

package endpoint_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/endpoint"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
)

func TestMain(m *testing.M) { testutil.VerifyNoLeaks(m) }

// stream remembers what an End does to it.
type stream struct {
	mu     sync.Mutex
	window int
	got    []byte
	held   int // given to the End and not consumed
	ended  string
}

func (s *stream) Window() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.window
}

func (s *stream) Send(c *buffer.Chunk, _ bool) { s.SendAll([]*buffer.Chunk{c}, true) }

func (s *stream) SendAll(cs []*buffer.Chunk, _ bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range cs {
		s.got = append(s.got, c.Bytes()...)
		s.window -= c.Len()
		c.Release()
	}
}

func (s *stream) Consumed(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held -= min(n, s.held)
}

func (s *stream) end(how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended += how + " "
}

func (s *stream) CloseWrite() { s.end("fin") }
func (s *stream) Close()      { s.end("close") }
func (s *stream) Reset(_ string, ordered bool) {
	if ordered {
		s.end("ordered")
	}
	s.end("reset")
}

func (s *stream) state() (got, held int, ended string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.got), s.held, s.ended
}

// rig is an End on a socket whose other end the test holds.
type rig struct {
	*endpoint.End
	st     *stream
	far    *net.TCPConn
	closed chan error
}

func newRig(t *testing.T, cfg endpoint.Config, window int) *rig {
	t.Helper()
	r, stop := startRig(t, cfg, window)
	t.Cleanup(stop)
	return r
}

// startRig is newRig for a test that has many.
func startRig(t *testing.T, cfg endpoint.Config, window int) (r *rig, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	r = &rig{End: endpoint.New(netx.New(near), cfg), st: &stream{window: window}, far: far.(*net.TCPConn), closed: make(chan error, 2)}
	r.OnClosed = func(err error) { r.closed <- err }
	r.Start(r.st)
	ran := make(chan struct{})
	go func() { defer close(ran); r.Run() }()
	return r, func() {
		_ = far.Close()
		r.Abort("test is over")
		r.st.mu.Lock()
		r.st.window = 1 << 20 // a stream that is over takes all, to drop it
		r.st.mu.Unlock()
		r.Writable()
		<-ran
	}
}

// data hands bytes to the End as the link does.
func (r *rig) data(p []byte) {
	for len(p) > 0 {
		c := buffer.From(p[:min(len(p), buffer.MaxPayload)])
		p = p[c.Len():]
		r.st.mu.Lock()
		r.st.held += c.Len()
		r.st.mu.Unlock()
		r.Data(c)
	}
}

// TestWindow: no more is read from the socket than the window allows, and the rest
// when it opens.
func TestWindow(t *testing.T) {
	r := newRig(t, endpoint.Config{}, 1000)
	if _, err := r.far.Write(make([]byte, 5000)); err != nil {
		t.Fatal(err)
	}
	sinktest.Eventually(t, "the window is used", func() bool { n, _, _ := r.st.state(); return n == 1000 })
	time.Sleep(50 * time.Millisecond) // in which nothing is sent
	if n, _, _ := r.st.state(); n != 1000 {
		t.Errorf("%d bytes were sent with a window of 1000", n)
	}
	r.st.mu.Lock()
	r.st.window = 10_000
	r.st.mu.Unlock()
	r.Writable()
	sinktest.Eventually(t, "the rest", func() bool { n, _, _ := r.st.state(); return n == 5000 })
}

// TestHalves: each direction ends by itself, and the socket when both have.
func TestHalves(t *testing.T) {
	r := newRig(t, endpoint.Config{}, 1<<20)
	_ = r.far.CloseWrite()
	sinktest.Eventually(t, "the socket's end is passed on", func() bool { _, _, e := r.st.state(); return e == "fin " })
	r.data(bytes.Repeat([]byte{1}, 300_000))
	r.End.End()
	got, err := io.ReadAll(r.far)
	if err != nil || len(got) != 300_000 {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	if err := <-r.closed; err != nil {
		t.Errorf("closed by %v", err)
	}
	if _, held, _ := r.st.state(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}

// TestClosedIsWritten: a socket that reads slowly is not called closed before it has
// all: a process that drains ends when all are, and what waits for them is lost then.
func TestClosedIsWritten(t *testing.T) {
	for name, end := range map[string]func(*rig){
		"closed": func(r *rig) { r.End.End() },
		"reset":  func(r *rig) { r.Aborted(&tunnel.ResetError{Reason: "by the peer"}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, endpoint.Config{}, 1<<20)
			_ = r.far.CloseWrite()
			sinktest.Eventually(t, "the socket's end is passed on", func() bool { _, _, e := r.st.state(); return e == "fin " })
			const size = 16 << 20 // more than the kernel takes
			r.data(make([]byte, size))
			end(r)
			select {
			case err := <-r.closed:
				t.Fatalf("closed by %v with %d bytes waiting", err, r.Out().Buffered())
			case <-time.After(100 * time.Millisecond):
			}
			if n, _ := io.Copy(io.Discard, r.far); n != size {
				t.Errorf("read %d of %d bytes", n, size)
			}
			why := <-r.closed
			if (why != nil) != (name == "reset") {
				t.Errorf("closed by %v", why)
			}
			select {
			case err := <-r.closed:
				t.Errorf("closed again, by %v", err)
			case <-time.After(20 * time.Millisecond):
			}
		})
	}
}

// TestPeerCloses: a socket whose other end is closed for good ends both directions.
func TestPeerCloses(t *testing.T) {
	r := newRig(t, endpoint.Config{}, 1<<20)
	if _, err := r.far.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	sinktest.Eventually(t, "they are passed on", func() bool { n, _, _ := r.st.state(); return n == 10 })
	_ = r.far.Close()
	r.data([]byte("too late"))
	r.data([]byte("later"))
	sinktest.Eventually(t, "it ends", func() bool { _, _, e := r.st.state(); return e != "" && e != "fin " })
	sinktest.Eventually(t, "nothing is held", func() bool { _, held, _ := r.st.state(); return held == 0 })
}

// TestDropsWhatIsNotRead: a socket that is not read and whose stream is aborted, by
// the other side or for its memory, gives back what it holds. A reset that stands
// behind data comes behind that data.
func TestDropsWhatIsNotRead(t *testing.T) {
	for name, abort := range map[string]error{"link is gone": tunnel.ErrLinkClosed, "evicted": tunnel.ErrEvicted} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, endpoint.Config{}, 1<<20)
			before := buffer.InUse()
			for buffer.InUse() < before+4<<20 { // more than the kernel takes
				r.data(make([]byte, 256<<10))
			}
			r.Aborted(abort)
			if err := <-r.closed; !errors.Is(err, abort) {
				t.Errorf("closed by %v", err)
			}
			sinktest.Eventually(t, "nothing is held", func() bool { _, held, _ := r.st.state(); return held == 0 && buffer.InUse() <= before })
			if _, err := io.Copy(io.Discard, r.far); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the other end sees %v, want a reset", err)
			}
		})
	}
	t.Run("reset behind data", func(t *testing.T) {
		r := newRig(t, endpoint.Config{}, 1<<20)
		const size = 8 << 20
		r.data(make([]byte, size))
		r.Aborted(&tunnel.ResetError{Reason: "by the peer"})
		n, err := io.Copy(io.Discard, r.far)
		if n != size || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the other end sees %d bytes and %v, want %d and a reset", n, err, size)
		}
		sinktest.Eventually(t, "nothing is held", func() bool { _, held, _ := r.st.state(); return held == 0 })
	})
}

// TestHold: what has to wait goes out in order once it may, the end behind it.
func TestHold(t *testing.T) {
	r := newRig(t, endpoint.Config{FirstData: func() bool { return true }}, 1<<20)
	r.data([]byte("first "))
	r.data([]byte("second"))
	r.End.End()
	_ = r.far.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := r.far.Read(make([]byte, 10)); err == nil {
		t.Errorf("%d bytes came before they might", n)
	}
	_ = r.far.SetReadDeadline(time.Time{})
	r.Open()
	if got, err := io.ReadAll(r.far); err != nil || string(got) != "first second" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestHeldIsNotLost: what has to wait goes out also if the stream ends meanwhile and
// the dialer's patience is over before it may.
func TestHeldIsNotLost(t *testing.T) {
	for name, end := range map[string]func(*rig){
		"closed": func(r *rig) { r.End.End(); r.PeerClosed() },
		"both directions": func(r *rig) {
			r.End.End()
			_ = r.far.CloseWrite()
			sinktest.Eventually(t, "the socket's end is passed on", func() bool { _, _, e := r.st.state(); return e == "fin " })
		},
		"reset": func(r *rig) { r.Aborted(&tunnel.ResetError{Reason: "by the peer"}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, endpoint.Config{FirstData: func() bool { return true }, Linger: 20 * time.Millisecond}, 1<<20)
			r.data([]byte("all of it"))
			end(r)
			time.Sleep(100 * time.Millisecond) // longer than Linger
			r.Open()
			got, err := io.ReadAll(r.far)
			if wantReset := name == "reset"; string(got) != "all of it" || errors.Is(err, syscall.ECONNRESET) != wantReset {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// TestCutOffIsNoEnd: a socket that is given up with bytes waiting for it sees a reset:
// an orderly end would make what it got look like all.
func TestCutOffIsNoEnd(t *testing.T) {
	r := newRig(t, endpoint.Config{Linger: 100 * time.Millisecond, Stall: 500 * time.Millisecond}, 1<<20)
	const size = 16 << 20 // more than the kernel takes
	r.data(make([]byte, size))
	r.End.End()
	r.PeerClosed()
	if err := <-r.closed; err == nil {
		t.Error("closed in an orderly way")
	}
	if n, err := io.Copy(io.Discard, r.far); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the other end sees %d of %d bytes and %v, want a reset", n, size, err)
	}
}

// TestDialerIsGone: a destination that goes on sending to a dialer that is gone,
// and one that is silent, are closed after their time.
func TestDialerIsGone(t *testing.T) {
	for name, sends := range map[string]bool{"silent": false, "sends": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, endpoint.Config{Linger: 500 * time.Millisecond, Stall: 600 * time.Millisecond}, 1<<30)
			r.data([]byte("bye"))
			r.End.End()
			r.PeerClosed()
			if sends {
				go func() {
					for b := make([]byte, 64<<10); ; {
						if _, err := r.far.Write(b); err != nil {
							return
						}
					}
				}()
			}
			got := make([]byte, 3)
			if _, err := io.ReadFull(r.far, got); err != nil || string(got) != "bye" {
				t.Errorf("the destination got %q, %v", got, err)
			}
			select {
			case err := <-r.closed:
				t.Logf("closed: %v", err)
			case <-time.After(time.Minute):
				t.Error("the socket stays")
			}
			if n, _, _ := r.st.state(); n > 0 {
				t.Errorf("%d bytes were sent to a dialer that is gone", n)
			}
		})
	}
}
