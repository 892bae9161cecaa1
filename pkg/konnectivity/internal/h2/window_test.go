// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// purse is a Budget.
type purse struct{ left atomic.Int64 }

func (p *purse) Take(n int) bool {
	if p.left.Add(-int64(n)) < 0 {
		p.left.Add(int64(n))
		return false
	}
	return true
}

func (p *purse) Give(n int) { p.left.Add(int64(n)) }

const (
	testWindow = 100_000
	testFirst  = 16384
)

// opened returns a client that has acknowledged SETTINGS and a stream of it.
func opened(t *testing.T, b Budget) (*peer, *Stream) {
	t.Helper()
	p := newPeer(t, Config{StreamWindow: testWindow, FirstWindow: testFirst, Budget: b})
	p.read(t, "SETTINGS", func(fr http2.Frame) bool {
		f, ok := fr.(*http2.SettingsFrame)
		if !ok || f.IsAck() {
			return false
		}
		if v, _ := f.Value(http2.SettingInitialWindowSize); v != testFirst {
			t.Errorf("the first window is %d, want %d", v, testFirst)
		}
		return true
	})
	_ = p.fr.WriteSettingsAck()
	p.request(1)
	return p, <-p.st
}

// update returns what the next update of the stream's window gives.
func (p *peer) update(t *testing.T) (n int) {
	t.Helper()
	p.read(t, "WINDOW_UPDATE", func(fr http2.Frame) bool {
		f, ok := fr.(*http2.WindowUpdateFrame)
		if ok && f.StreamID == 1 {
			n = int(f.Increment)
		}
		return n > 0
	})
	return n
}

// upload sends n bytes in frames, and waits until they have come.
func (p *peer) upload(t *testing.T, n int) {
	t.Helper()
	p.h.mu.Lock()
	want := len(p.h.data) + n
	p.h.mu.Unlock()
	for ; n > 0; n -= min(n, 4096) {
		_ = p.fr.WriteData(1, false, make([]byte, min(n, 4096)))
	}
	p.h.wait(t, "data", func() bool { return len(p.h.data) == want })
}

// TestWindowGrows: the window of a stream whose client waits for it grows once, when
// what has come is consumed, and what it has grown by is given back at its end.
func TestWindowGrows(t *testing.T) {
	b := &purse{}
	b.left.Store(testWindow)
	p, st := opened(t, b)
	p.upload(t, testFirst)
	if b.left.Load() != testWindow {
		t.Error("it has grown though nothing was consumed")
	}
	st.Consumed(testFirst)
	if n := p.update(t); n != testWindow {
		t.Errorf("the window was opened by %d, want %d", n, testWindow)
	}
	p.upload(t, testWindow)
	st.Consumed(testWindow)
	if n := p.update(t); n != testWindow {
		t.Errorf("the grown window was opened by %d, want %d", n, testWindow)
	}
	_ = p.fr.WriteRSTStream(1, 0)
	p.h.wait(t, "the end", func() bool { return p.h.closed })
	if n := b.left.Load(); n != testWindow {
		t.Errorf("%d bytes are left of %d", n, testWindow)
	}
	st.Consumed(testFirst)
	if n := b.left.Load(); n != testWindow {
		t.Errorf("%d bytes are left after its end", n)
	}
}

// TestWindowStays: without room the window stays, and so does that of a client which
// never uses it up.
func TestWindowStays(t *testing.T) {
	b := &purse{}
	p, st := opened(t, b)
	p.upload(t, testFirst)
	st.Consumed(testFirst)
	if n := p.update(t); n != testFirst {
		t.Errorf("without room the window was opened by %d, want %d", n, testFirst)
	}
	b.left.Store(testWindow)
	for range 5 {
		p.upload(t, testFirst/2)
		st.Consumed(testFirst / 2)
		if n := p.update(t); n != testFirst/2 {
			t.Fatalf("half of the window was used, and it was opened by %d", n)
		}
	}
}

// TestUnsettledWindow: a client may use the window that HTTP/2 begins with until it
// has acknowledged ours.
func TestUnsettledWindow(t *testing.T) {
	p := newPeer(t, Config{StreamWindow: testWindow, FirstWindow: testFirst})
	p.request(1)
	<-p.st
	p.upload(t, initialWindow)
	_ = p.fr.WriteSettingsAck()
	_ = p.fr.WriteData(1, false, []byte("x"))
	select {
	case err := <-p.ok:
		var ce *ConnError
		if !errors.As(err, &ce) || ce.Code != CodeFlowControl {
			t.Errorf("the connection ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the window does not matter")
	}
}
