// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/internal/wsconn"
)

// TestBrokenClientLeaves: a client that reads nothing and has broken the protocol, or closed the connection, loses its place.
// The bytes that wait for it do not hold that back.
func TestBrokenClientLeaves(t *testing.T) {
	closed := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	for name, send := range map[string]func(*websocket.Conn) error{
		"text": func(ws *websocket.Conn) error { return ws.WriteMessage(websocket.TextMessage, []byte("x")) },
		"too long": func(ws *websocket.Conn) error {
			return ws.WriteMessage(websocket.BinaryMessage, make([]byte, 2*wsconn.MaxMessage))
		},
		"closed": func(ws *websocket.Conn) error { return ws.WriteMessage(websocket.CloseMessage, closed) },
		"reset":  func(ws *websocket.Conn) error { return ws.WriteMessage(websocket.CloseMessage, nil) },
		"closed after the end": func(ws *websocket.Conn) error {
			if err := ws.WriteMessage(websocket.BinaryMessage, nil); err != nil {
				return err
			}
			return ws.WriteMessage(websocket.CloseMessage, closed)
		},
		"message after the end": func(ws *websocket.Conn) error {
			if err := ws.WriteMessage(websocket.BinaryMessage, nil); err != nil {
				return err
			}
			return ws.WriteMessage(websocket.BinaryMessage, []byte("x"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			full := make(chan struct{})
			w := newWorld(t, func(c net.Conn) { flood(c, full) }, func(c *Config) { c.MaxPerUser = 1 }, allRights...)
			ws := w.raw("alice")
			select {
			case <-full:
			case <-time.After(patience):
				t.Fatal("the client takes everything")
			}
			if err := send(ws); err != nil {
				t.Fatal(err)
			}
			testutil.Eventually(t, patience, func() error {
				_, s := w.dial("alice", "svc.web.svc", 80)
				if s != nil && s.Code != http.StatusTooManyRequests {
					t.Fatalf("%+v", s)
				}
				if s != nil {
					return fmt.Errorf("the place is not free: %+v", s)
				}
				return nil
			})
		})
	}
}

// flood writes until the other side has taken nothing for a while, which full gets to know, and goes on.
func flood(c net.Conn, full chan<- struct{}) {
	for block, told := make([]byte, 1<<20), false; ; {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, err := c.Write(block)
		if ne, ok := err.(net.Error); ok && ne.Timeout() { //nolint:errorlint // it is what Write returns
			if !told {
				told = true
				close(full)
			}
			continue
		}
		if err != nil {
			return
		}
	}
}

// raw opens a connection as a user, for a client that need not keep to the protocol.
func (w *world) raw(user string) *websocket.Conn {
	w.t.Helper()
	q := url.Values{"user": {user}, "host": {"svc.web.svc"}, "port": {"80"}}
	d := websocket.Dialer{Subprotocols: []string{wsconn.Protocol}}
	ws, resp, err := d.Dial("ws"+strings.TrimPrefix(w.url, "http")+"?"+q.Encode(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	_ = resp.Body.Close()
	w.t.Cleanup(func() { _ = ws.Close() })
	return ws
}
