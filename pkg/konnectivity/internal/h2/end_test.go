// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
)

// TestSendsBehindEnd checks that a client that sends after the end of a stream loses that
// stream, that the stream's handler gets the reason, and that another stream of the
// connection continues.
func TestSendsBehindEnd(t *testing.T) {
	for name, late := range map[string]func(p *peer){
		"data":    func(p *peer) { _ = p.fr.WriteData(1, false, []byte("late")) },
		"headers": func(p *peer) { p.request(1) },
	} {
		t.Run(name, func(t *testing.T) { sendsBehindEnd(t, late) })
	}
}

func sendsBehindEnd(t *testing.T, late func(p *peer)) {
	first, second := newOrderly(), newOrderly()
	handlers := []*orderly{first, second}
	p := newPeer(t, Config{OnStream: func(st *Stream, _ []Field) {
		st.SetHandler(handlers[0])
		handlers = handlers[1:]
		st.WriteHeaders([]Field{{":status", "200"}})
	}})
	p.request(1)
	p.request(3)
	_ = p.fr.WriteData(1, true, []byte("all"))
	late(p)
	_ = p.fr.WriteData(3, true, []byte("other"))
	p.read(t, "reset", func(f http2.Frame) bool {
		r, ok := f.(*http2.RSTStreamFrame)
		return ok && r.StreamID == 1 && r.ErrCode == http2.ErrCodeStreamClosed
	})
	var se *StreamError
	if err := <-first.closed; !errors.As(err, &se) || se.Breach == "" {
		t.Errorf("closed by %v", err)
	}
	<-second.ended
	if string(first.data) != "all" || string(second.data) != "other" {
		t.Errorf("data %q and %q", first.data, second.data)
	}
}

// orderly is a handler that records its calls, and checks that none follows the last one.
type orderly struct {
	data   []byte
	ended  chan struct{}
	closed chan error
}

func newOrderly() *orderly {
	return &orderly{ended: make(chan struct{}), closed: make(chan error, 1)}
}

func (o *orderly) Headers([]Field) {}

func (o *orderly) Data(p []byte) error { o.data = append(o.data, p...); return nil }

func (o *orderly) End() { close(o.ended) }

func (o *orderly) Closed(err error) { o.closed <- err }

// TestEndBeforeClosed checks that the handler gets End before Closed, even if the other
// direction ends at the same moment.
func TestEndBeforeClosed(t *testing.T) {
	for range 100 {
		var st *Stream
		h := &endThenClosed{closed: make(chan bool, 1)}
		opened := make(chan struct{})
		p := newPeer(t, Config{OnStream: func(s *Stream, _ []Field) { st = s; s.SetHandler(h); close(opened) }})
		p.request(1)
		<-opened
		go st.Finish([]Field{{"grpc-status", "0"}})
		_ = p.fr.WriteData(1, true, []byte("x"))
		if !<-h.closed {
			t.Fatal("closed before the end was told")
		}
		_ = p.nc.Close()
	}
}

// endThenClosed reports at Closed whether End was called before. It has no lock, because
// the calls must not be concurrent.
type endThenClosed struct {
	end    bool
	closed chan bool
}

func (*endThenClosed) Headers([]Field) {}

func (*endThenClosed) Data([]byte) error { return nil }

func (h *endThenClosed) End() { h.end = true }

func (h *endThenClosed) Closed(error) { h.closed <- h.end }

// TestResetBehindOwnEnd checks that a stream that this side has ended can still be reset.
// Otherwise a peer that continues to send would wait for its window for ever.
func TestResetBehindOwnEnd(t *testing.T) {
	p := newPeer(t, Config{})
	p.request(1)
	st := <-p.st
	st.Finish([]Field{{"grpc-status", "0"}})
	p.c.GoAway("the test") // the connection ends with the stream
	st.Reset(CodeCancel)
	p.read(t, "reset", func(f http2.Frame) bool {
		r, ok := f.(*http2.RSTStreamFrame)
		return ok && r.StreamID == 1 && r.ErrCode == http2.ErrCodeCancel
	})
	if n := p.c.Streams(); n != 0 {
		t.Errorf("%d streams are left", n)
	}
}

// TestTrailersMeetReset checks that trailers of a stream that this side has reset
// meanwhile are ignored, and that another stream continues.
func TestTrailersMeetReset(t *testing.T) {
	p := newPeer(t, Config{})
	p.request(1)
	(<-p.st).Reset(CodeCancel)
	_ = p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}, EndHeaders: true, EndStream: true})
	p.request(3)
	<-p.st
	_ = p.fr.WriteData(3, false, []byte("other"))
	p.h.wait(t, "data of the other stream", func() bool { return string(p.h.data) == "other" })
}

// TestLastWords checks that the connection reads what a peer sent before it was killed,
// although an answer to a part of it has failed.
func TestLastWords(t *testing.T) {
	const frames, size = 3, 16 << 10 // fits into the kernel's buffers before the other side reads
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			h := &interrupted{left: make(chan struct{}), closed: make(chan struct{})}
			p := newPeerOver(t, network, Config{OnStream: func(st *Stream, _ []Field) {
				h.st = st
				st.SetHandler(h)
				st.WriteHeaders([]Field{{":status", "200"}})
			}})
			p.request(1)
			for range frames {
				if err := p.fr.WriteData(1, false, make([]byte, size)); err != nil {
					t.Fatal(err)
				}
			}
			if tc, ok := p.nc.(*net.TCPConn); ok { // so that the reset comes after the data
				for sc := netx.New(tc); sc.Unacked() > 0; {
					time.Sleep(time.Millisecond)
				}
			}
			_ = p.nc.Close() // with SETTINGS unread
			close(h.left)
			select {
			case <-h.closed:
			case <-time.After(time.Minute):
				t.Fatal("the stream never ends")
			}
			if h.got != frames*size {
				t.Errorf("%d of %d bytes were heard", h.got, frames*size)
			}
			if p.c.writeErr.Load() == nil {
				t.Error("no write has failed")
			}
			if err := <-p.ok; err == nil || errors.Is(err, io.EOF) {
				t.Errorf("the connection ended with %v", err)
			}
		})
	}
}

// TestDeafPeer checks that the connection reads from a peer that takes no data and
// continues to send for no longer than LastWords.
func TestDeafPeer(t *testing.T) {
	const bound = 300 * time.Millisecond
	p := newPeerOver(t, "unix", Config{LastWords: bound})
	p.request(1)
	st := <-p.st
	_ = p.nc.(*net.UnixConn).CloseRead()
	start := time.Now()
	st.SendControl([]byte("is anybody there?"))
	for end := start.Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		_ = p.fr.WriteData(1, false, []byte("x"))
		select {
		case err := <-p.ok:
			if d := time.Since(start); d < bound || !errors.Is(err, syscall.EPIPE) {
				t.Errorf("it ended after %v with %v", d, err)
			}
			return
		default:
		}
	}
	t.Error("the connection goes on")
}

// interrupted is a handler that answers its first piece when the peer has gone.
type interrupted struct {
	st     *Stream
	got    int
	left   chan struct{}
	closed chan struct{}
}

func (*interrupted) Headers([]Field) {}

func (h *interrupted) Data(p []byte) error {
	h.got += len(p)
	<-h.left
	h.st.SendControl([]byte("so far"))
	return nil
}

func (*interrupted) End() {}

func (h *interrupted) Closed(error) { close(h.closed) }
