// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/gateway/internal/gone/gonetest"
)

// TestVanished: a download, and a stream of an upgraded connection, to a client that vanishes end after the time of keepalive. One to
// a client that reads nothing for longer than that does not.
func TestVanished(t *testing.T) {
	t.Parallel()
	const after = time.Second
	flood := func(w io.Writer) {
		for piece := make([]byte, 64<<10); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}
	for name, c := range map[string]struct{ tls, upgrade bool }{"download": {}, "download in TLS": {tls: true}, "upgraded connection": {upgrade: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{}, 2)
			api := startAPIServer(t, func(w http.ResponseWriter, _ *http.Request) {
				defer func() { ended <- struct{}{} }()
				if !c.upgrade {
					flood(w)
					return
				}
				nc, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer nc.Close()
				_, _ = io.WriteString(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
				flood(nc)
			})
			o := Options{Config: api.config(), goneAfter: after}
			if c.tls {
				o.TLS = &tls.Config{Certificates: api.TLS.Certificates, MinVersion: tls.VersionTLS12}
			}
			address, _ := serve(t, o, 0)
			begin := func() *net.TCPConn {
				nc, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = nc.Close() })
				stream := nc
				if c.tls {
					stream = tls.Client(nc, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // a test's own
				}
				request := get("/api/v1/namespaces/x/pods/p/exec", "localhost")
				if c.upgrade {
					request = upgrade("/api/v1/namespaces/x/pods/p/exec")
				}
				if _, err := io.WriteString(stream, request); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(stream, make([]byte, 1<<20)); err != nil {
					t.Fatal(err)
				}
				return nc.(*net.TCPConn)
			}
			slow := begin()
			time.Sleep(4 * after) // in which the slow client must not be cut off
			select {
			case <-ended:
				t.Fatal("the connection of a client that reads slowly was ended")
			default:
			}
			gonetest.Vanish(t, begin())
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatal("the connection of a client that has vanished is open")
			}
			if _, err := io.CopyN(io.Discard, slow, 8<<20); err != nil { // more than all buffers hold
				t.Errorf("the client that reads slowly: %v", err)
			}
			_ = slow.Close()
			<-ended
		})
	}
}
