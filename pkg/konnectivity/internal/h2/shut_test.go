// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"io"
	"testing"

	"golang.org/x/net/http2"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
)

// starving returns a connection whose streams all wait for its window, which is shut.
// Their own windows are open.
func starving(tb testing.TB, streams int) *Conn {
	tb.Helper()
	a, b := joined(tb, "unix")
	read := make(chan struct{})
	go func() { defer close(read); _, _ = io.Copy(io.Discard, a) }()
	tb.Cleanup(func() { _ = b.Close(); _ = a.Close(); <-read })
	c := newConn(b, Config{})
	c.sendWin, c.peerWin = 0, maxWindow
	for i := range streams {
		c.addStream(uint32(2*i+1)).SendData(1, &handler{}, buffer.From(make([]byte, buffer.MaxPayload)))
	}
	return c
}

// grant sends a WINDOW_UPDATE of one byte for the connection, as feed does.
func grant(tb testing.TB, c *Conn) {
	tb.Helper()
	if err := c.windowUpdate(0, oneByte); err != nil {
		tb.Fatal(err)
	}
	c.mu.Lock()
	c.flushLocked()
	c.mu.Unlock()
}

// TestShutConnWindow: of many streams that wait for the connection's window, a byte of it
// has one send, and the streams take turns.
func TestShutConnWindow(t *testing.T) {
	const streams = 900
	c := starving(t, streams)
	sent := func() (n int) {
		for _, st := range c.streams {
			n += int(maxWindow - st.sendWin)
		}
		return n
	}
	for i := range 2 * streams {
		grant(t, c)
		if n := sent(); n != i+1 {
			t.Fatalf("%d bytes are sent with a window of %d", n, i+1)
		}
		if len(c.pump) != 0 {
			t.Fatalf("%d streams try to send through a shut window", len(c.pump))
		}
	}
	for id, st := range c.streams {
		if n := maxWindow - st.sendWin; n != 2 {
			t.Errorf("stream %d has sent %d bytes, want 2", id, n)
		}
	}
}

// TestTrailersPassShutWindow: trailers need no window. A stream that has dropped what
// waited for the connection's window ends, though the window stays shut.
func TestTrailersPassShutWindow(t *testing.T) {
	p := newPeer(t, Config{})
	p.request(1)
	st := <-p.st
	p.read(t, "headers of the connection", func(f http2.Frame) bool { _, ok := f.(*http2.SettingsFrame); return ok })
	p.c.mu.Lock()
	p.c.sendWin = 0
	p.c.mu.Unlock()
	h := &handler{}
	st.SendData(1, h, buffer.From([]byte("never sent")))
	st.Drop(h)
	st.Finish([]Field{{"grpc-status", "0"}})
	p.read(t, "trailers", func(f http2.Frame) bool {
		m, ok := f.(*http2.MetaHeadersFrame)
		return ok && m.StreamEnded()
	})
}

// BenchmarkShutConnWindow: updates by one byte of a connection's window that is shut,
// with 900 streams that wait for it.
func BenchmarkShutConnWindow(b *testing.B) {
	c := starving(b, 900)
	for b.Loop() {
		grant(b, c)
	}
}
