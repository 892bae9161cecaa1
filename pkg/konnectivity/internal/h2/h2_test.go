// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
)

func TestMain(m *testing.M) { testutil.VerifyNoLeaks(m) }

// handler records one stream.
type handler struct {
	mu     sync.Mutex
	data   []byte
	end    bool
	closed bool
	sent   int
	fields []Field
}

func (h *handler) Headers(f []Field) { h.mu.Lock(); h.fields = append(h.fields, f...); h.mu.Unlock() }
func (h *handler) Data(p []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.data = append(h.data, p...)
	return nil
}
func (h *handler) End()         { h.mu.Lock(); h.end = true; h.mu.Unlock() }
func (h *handler) Closed(error) { h.mu.Lock(); h.closed = true; h.mu.Unlock() }
func (h *handler) Sent(n int)   { h.mu.Lock(); h.sent += n; h.mu.Unlock() }

func (h *handler) wait(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		h.mu.Lock()
		ok := f()
		h.mu.Unlock()
		if ok {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

// peer is a client made with the framer of golang.org/x/net/http2.
type peer struct {
	nc net.Conn
	fr *http2.Framer
	h  *handler
	st chan *Stream
	c  *Conn
	ok chan error
}

func newPeer(t *testing.T, cfg Config) *peer { return newPeerOver(t, "tcp", cfg) }

// joined returns both ends of a connection.
func joined(t testing.TB, network string) (a, b net.Conn) {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = "" // the kernel chooses an abstract address
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func newPeerOver(t *testing.T, network string, cfg Config) *peer {
	t.Helper()
	a, b := joined(t, network)
	p := &peer{nc: a, fr: http2.NewFramer(a, a), h: &handler{}, st: make(chan *Stream, 10), ok: make(chan error, 1)}
	p.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if cfg.OnStream == nil {
		cfg.OnStream = func(st *Stream, _ []Field) {
			st.SetHandler(p.h)
			st.WriteHeaders([]Field{{":status", "200"}})
			p.st <- st
		}
	}
	p.c = NewServer(b, cfg)
	go func() { p.ok <- p.c.Serve() }()
	t.Cleanup(func() { a.Close(); p.c.Close() })
	_, _ = a.Write([]byte(preface))
	_ = p.fr.WriteSettings()
	return p
}

func (p *peer) request(id uint32) {
	_ = p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: requestBlock(), EndHeaders: true})
}

// read reads frames until f is satisfied.
func (p *peer) read(t *testing.T, what string, f func(http2.Frame) bool) {
	t.Helper()
	_ = p.nc.SetReadDeadline(time.Now().Add(time.Minute))
	for {
		fr, err := p.fr.ReadFrame()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if f(fr) {
			return
		}
	}
}

// TestWindows checks that data stops at the windows of the client and continues
// when they open.
func TestWindows(t *testing.T) {
	p := newPeer(t, Config{})
	p.request(1)
	st := <-p.st
	const total = 200_000
	for left := total; left > 0; {
		c := buffer.From(make([]byte, min(left, buffer.MaxPayload)))
		left -= c.Len()
		st.SendData(1, p.h, c)
	}
	got := 0
	count := func(fr http2.Frame) bool {
		if d, ok := fr.(*http2.DataFrame); ok {
			got += len(d.Data())
		}
		return got >= initialWindow
	}
	p.read(t, "first window", count)
	time.Sleep(20 * time.Millisecond) // in which nothing comes
	if got != initialWindow {
		t.Fatalf("%d bytes came, the window is %d", got, initialWindow)
	}
	_ = p.fr.WriteWindowUpdate(1, 1<<20)
	_ = p.fr.WriteWindowUpdate(0, 1<<20)
	p.read(t, "the rest", func(fr http2.Frame) bool { count(fr); return got > total })
	p.h.wait(t, "all is reported", func() bool { return p.h.sent == total })
	st.Finish([]Field{{"grpc-status", "0"}})
	p.read(t, "trailers", func(fr http2.Frame) bool {
		h, ok := fr.(*http2.MetaHeadersFrame)
		return ok && h.StreamEnded()
	})
}

// TestReceive checks that data in frames of all kinds arrives as one stream, and
// that the window opens as the data is consumed.
func TestReceive(t *testing.T) {
	p := newPeer(t, Config{StreamWindow: 1 << 16})
	p.request(1)
	st := <-p.st
	_ = p.fr.WriteData(1, false, []byte("one "))
	_ = p.fr.WriteDataPadded(1, false, []byte("two "), make([]byte, 100))
	_ = p.fr.WritePing(false, [8]byte{7})
	_ = p.fr.WriteRawFrame(0xfe, 0, 1, []byte("unknown"))
	_ = p.fr.WriteData(1, false, make([]byte, 16384))
	p.read(t, "PONG", func(fr http2.Frame) bool {
		f, ok := fr.(*http2.PingFrame)
		return ok && f.IsAck() && f.Data == [8]byte{7}
	})
	p.h.wait(t, "data", func() bool { return len(p.h.data) == 8+16384 })
	if !bytes.HasPrefix(p.h.data, []byte("one two ")) {
		t.Errorf("got %q", p.h.data[:8])
	}
	st.Consumed(1 << 15)
	p.read(t, "WINDOW_UPDATE", func(fr http2.Frame) bool {
		f, ok := fr.(*http2.WindowUpdateFrame)
		return ok && f.StreamID == 1 && f.Increment == 1<<15+101 // with the padding
	})
	_ = p.fr.WriteData(1, true, nil)
	p.h.wait(t, "the end", func() bool { return p.h.end })
}

// TestAcknowledgementsWait checks that the answer to a PING or SETTINGS is sent
// after the data of the moment, and is sent even without any data.
func TestAcknowledgementsWait(t *testing.T) {
	p := newPeer(t, Config{AckDelay: 300 * time.Millisecond})
	p.request(1)
	st := <-p.st
	_ = p.fr.WritePing(false, [8]byte{7})
	_ = p.fr.WriteData(1, false, []byte("x")) // when the data has arrived, so has the PING
	p.h.wait(t, "data", func() bool { return len(p.h.data) == 1 })
	st.SendControl([]byte("at once"))
	var settings, pong, data bool
	p.read(t, "data before PONG", func(fr http2.Frame) bool {
		switch f := fr.(type) {
		case *http2.DataFrame:
			data = true
		case *http2.SettingsFrame:
			settings = settings || f.IsAck()
		case *http2.PingFrame:
			pong = true
		}
		if (settings || pong) && !data {
			t.Fatal("an acknowledgement was sent on its own")
		}
		return settings && pong
	})
}

// TestViolations checks that protocol violations end the connection.
func TestViolations(t *testing.T) {
	for name, f := range map[string]func(p *peer){
		"data on an idle stream": func(p *peer) { _ = p.fr.WriteData(3, false, []byte("x")) },
		"beyond the window": func(p *peer) {
			for range 6 {
				_ = p.fr.WriteData(1, false, make([]byte, 16384))
			}
		},
		"stream number goes back": func(p *peer) {
			p.request(5)
			p.request(3)
		},
		"even stream number": func(p *peer) { p.request(2) },
		"headers interrupted": func(p *peer) {
			_ = p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0x82}})
			_ = p.fr.WritePing(false, [8]byte{})
		},
		"bad header block":   func(p *peer) { _ = p.fr.WriteRawFrame(1, 4, 3, bytes.Repeat([]byte{0xff}, 20)) },
		"oversized frame":    func(p *peer) { _, _ = p.nc.Write([]byte{0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1}) },
		"push promise":       func(p *peer) { _ = p.fr.WriteRawFrame(5, 0, 1, make([]byte, 8)) },
		"window overflow":    func(p *peer) { _ = p.fr.WriteWindowUpdate(0, 1<<31-1) },
		"short settings":     func(p *peer) { _ = p.fr.WriteRawFrame(4, 0, 0, []byte{1}) },
		"reset of an idle":   func(p *peer) { _ = p.fr.WriteRSTStream(9, 0) },
		"padding too long":   func(p *peer) { _ = p.fr.WriteRawFrame(0, 8, 1, []byte{200, 1}) },
		"update of an idle":  func(p *peer) { _ = p.fr.WriteWindowUpdate(9, 1) },
		"short window frame": func(p *peer) { _ = p.fr.WriteRawFrame(8, 0, 0, []byte{1}) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, Config{StreamWindow: 1 << 16})
			p.request(1)
			<-p.st
			p.fr.AllowIllegalWrites = true
			f(p)
			go func() { _, _ = io.Copy(io.Discard, p.nc) }()
			select {
			case err := <-p.ok:
				var ce *ConnError
				if !errors.As(err, &ce) {
					t.Errorf("connection ended with %v", err)
				}
			case <-time.After(time.Minute):
				t.Error("connection goes on")
			}
			p.h.wait(t, "stream is closed", func() bool { return p.h.closed })
		})
	}
}

// TestClientServer connects a client to a server.
func TestClientServer(t *testing.T) {
	a, b := net.Pipe()
	sh, ch := &handler{}, &handler{}
	srv := make(chan *Stream, 1)
	var server *Conn
	made := make(chan struct{})
	go func() {
		server = NewServer(b, Config{OnStream: func(st *Stream, _ []Field) {
			st.SetHandler(sh)
			st.WriteHeaders([]Field{{":status", "200"}, {"serverid", "x"}})
			srv <- st
		}})
		close(made)
		_ = server.Serve()
	}()
	client := NewClient(a, Config{})
	done := make(chan struct{})
	go func() { defer close(done); _ = client.Serve() }()
	st := client.Open([]Field{{":method", "POST"}, {":path", "/x"}, {"long", string(bytes.Repeat([]byte("v"), 30_000))}}, ch)
	peer := <-srv
	peer.Flush()
	st.SendData(1, ch, buffer.From([]byte("up")))
	peer.SendData(2, sh, buffer.From([]byte("down")))
	sh.wait(t, "up", func() bool { return bytes.HasSuffix(sh.data, []byte("up")) })
	ch.wait(t, "down", func() bool { return bytes.HasSuffix(ch.data, []byte("down")) && len(ch.fields) == 2 })
	client.Close()
	<-made
	server.Close()
	<-done
	sh.wait(t, "closed", func() bool { return sh.closed })
}
