// SPDX-License-Identifier: Apache-2.0

package wsconn

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

const patience = 30 * time.Second

// pair returns both ends of a WebSocket over TCP.
func pair(t testing.TB) (client, server *websocket.Conn) {
	t.Helper()
	accepted := make(chan *websocket.Conn, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := websocket.Upgrader{Subprotocols: []string{Protocol}}
		ws, err := u.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		accepted <- ws
	}))
	t.Cleanup(srv.Close)
	d := websocket.Dialer{Subprotocols: []string{Protocol}}
	client, resp, err := d.Dial("ws"+strings.TrimPrefix(srv.URL, "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	server = <-accepted
	for _, ws := range []*websocket.Conn{client, server} {
		t.Cleanup(func() { _ = ws.Close() })
		_ = ws.NetConn().SetDeadline(time.Now().Add(patience))
	}
	return client, server
}

func conns(t testing.TB) (client, server *Conn) {
	t.Helper()
	c, s := pair(t)
	return New(c), New(s)
}

// TestHalves: each direction carries its bytes and ends by itself, whichever side ends first.
func TestHalves(t *testing.T) {
	for _, swap := range []bool{false, true} {
		a, b := conns(t)
		if swap {
			a, b = b, a
		}
		want := make([]byte, 1<<20)
		_, _ = rand.Read(want)
		failed := make(chan error, 1)
		go func() {
			_, err := a.Write(want)
			failed <- errors.Join(err, a.CloseWrite())
		}()
		got, err := io.ReadAll(b)
		if err := errors.Join(err, <-failed); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes: %v", len(got), err)
		}
		if _, err := a.Write([]byte("more")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("write after the end: %v", err)
		}
		if _, err := b.Write([]byte("answer")); err != nil {
			t.Fatal(err)
		}
		if err := b.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(a); err != nil || string(got) != "answer" {
			t.Errorf("the answer is %q: %v", got, err)
		}
		if n, err := b.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("read after the end: %d, %v", n, err)
		}
	}
}

// TestEnds: a close is an orderly end after what was written, and a reset, a broken connection and what does not belong into
// the protocol are resets. All of them are noticed by a side that has read the end of the other direction already.
func TestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(c *Conn)
		want  error
		bytes string
		part  string
	}{
		"close":             {func(c *Conn) { _, _ = c.Write([]byte("last")); _ = c.Close() }, io.EOF, "last", ""},
		"close after end":   {func(c *Conn) { _ = c.CloseWrite(); _ = c.Close() }, io.EOF, "", ""},
		"abort":             {func(c *Conn) { c.Abort("because") }, ErrReset, "", "because"},
		"abort, long":       {func(c *Conn) { c.Abort(strings.Repeat("x", 1000)) }, ErrReset, "", "xxx"},
		"broken":            {func(c *Conn) { _ = c.ws.NetConn().Close() }, ErrReset, "", ""},
		"text":              {func(c *Conn) { _ = c.ws.WriteMessage(websocket.TextMessage, []byte("x")) }, ErrReset, "", "binary"},
		"too long":          {func(c *Conn) { _ = c.ws.WriteMessage(websocket.BinaryMessage, make([]byte, MaxMessage+1)) }, ErrReset, "", "limit"},
		"close with reason": {func(c *Conn) { _ = c.close(websocket.CloseGoingAway, "") }, ErrReset, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := conns(t)
			c.end(a)
			var got bytes.Buffer
			_, err := io.Copy(&got, b)
			if err == nil {
				err = io.EOF
			}
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.part) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if c.bytes != "" && got.String() != c.bytes {
				t.Errorf("got %q", got.String())
			}
			wantLost(t, b)
		})
	}
}

func wantLost(t *testing.T, c *Conn) {
	t.Helper()
	select {
	case <-c.Lost():
	case <-time.After(patience):
		t.Error("the end of the connection is not noticed")
	}
}

// TestLostAfterEnd: after the end of one direction, the loss of the connection is noticed without a read or a write, and
// bytes that come after the end are a reset.
func TestLostAfterEnd(t *testing.T) {
	for name, end := range map[string]func(c *Conn){
		"broken": func(c *Conn) { _ = c.ws.NetConn().Close() },
		"bytes":  func(c *Conn) { _ = c.ws.WriteMessage(websocket.BinaryMessage, []byte("x")) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := conns(t)
			if err := a.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			select {
			case <-b.Lost():
				t.Fatal("the connection is lost at the end of one direction")
			case <-time.After(50 * time.Millisecond):
			}
			end(a)
			wantLost(t, b)
		})
	}
}

// TestPing: control frames are answered, move no bytes, and do not disturb those that are read.
func TestPing(t *testing.T) {
	a, b := conns(t)
	before := a.Moved()
	for range 3 {
		if err := a.Ping(); err != nil {
			t.Fatal(err)
		}
	}
	if !a.Moved().Equal(before) {
		t.Errorf("a ping counts as bytes: %v, before %v", a.Moved(), before)
	}
	if _, err := a.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 1)
	if _, err := io.ReadFull(b, got); err != nil || got[0] != 'x' {
		t.Errorf("%q, %v", got, err)
	}
	if !a.Moved().After(before) {
		t.Error("a write does not count as bytes")
	}
}

// FuzzRead reads what a peer sends that follows no protocol. Each reader must come to an end, without more bytes than were
// sent, and with an orderly end only if the peer has sent one: an empty message or a close frame.
func FuzzRead(f *testing.F) {
	f.Add([]byte{0x82, 0x01, 'x', 0x82, 0x00})             // a byte, and the end
	f.Add([]byte{0x82, 0x00, 0x82, 0x01, 'x'})             // a byte after the end
	f.Add([]byte{0x02, 0x00, 0x80, 0x01, 'x', 0x82, 0x00}) // a message in two frames, the first without bytes
	f.Add([]byte{0x88, 0x02, 0x03, 0xe8})                  // close, 1000
	f.Add([]byte{0x88, 0x02, 0x03, 0xf3})                  // close, 1011
	f.Add([]byte{0x81, 0x01, 'x'})                         // text
	f.Add([]byte{0x82, 0x7f, 0, 0, 1, 0, 0, 0, 0, 0})      // a terabyte
	f.Add([]byte{0x89, 0x01, 'p', 0x8a, 0x00})             // ping, pong
	f.Add([]byte{0xf2, 0x00})                              // reserved bits
	f.Fuzz(func(t *testing.T, frames []byte) {
		client, server := pair(t)
		raw := server.NetConn()
		go func() {
			_, _ = raw.Write(frames)
			_ = raw.Close()
		}()
		n, err := io.Copy(io.Discard, New(client))
		if n > int64(len(frames)) {
			t.Errorf("%d bytes of %d", n, len(frames))
		}
		if err != nil && !errors.Is(err, ErrReset) {
			t.Errorf("unknown error %v", err)
		}
		ends := bytes.Contains(frames, []byte{0x00}) || bytes.Contains(frames, []byte{0x03, 0xe8})
		if err == nil && !ends {
			t.Errorf("an orderly end of %x", frames)
		}
	})
}
