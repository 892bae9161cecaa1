// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/gateway/dial"
	"github.com/fairlead-dev/fairlead/pkg/gateway/internal/gone/gonetest"
)

// TestGone: a client, or a destination in the gateway's network, that vanishes while bytes are on their way to it is found after
// the time of keepalive, also if it read nothing before. Keepalive does not find it: the kernel sends no probes then.
func TestGone(t *testing.T) {
	t.Parallel()
	const after = 2 * time.Second
	for name, c := range map[string]struct {
		who string
		// run returns when the end has vanished with bytes on their way to it.
		run func(t *testing.T, w *world)
	}{
		"client": {"client", func(t *testing.T, w *world) {
			w.name("flood.default", serveTCP(t, func(nc *net.TCPConn) { _, _ = io.Copy(nc, zeros{}) }))
			nc := mustConnect(t, w, "flood.default")
			readFull(t, nc, make([]byte, 1<<20))
			gonetest.Vanish(t, nc)
		}},
		"client that reads nothing": {"client", func(t *testing.T, w *world) {
			w.name("flood.default", serveTCP(t, func(nc *net.TCPConn) { _, _ = io.Copy(nc, zeros{}) }))
			nc := mustConnect(t, w, "flood.default")
			time.Sleep(500 * time.Millisecond) // in which its window is filled
			gonetest.Vanish(t, nc)
		}},
		"destination": {"destination", func(t *testing.T, w *world) {
			accepted, release := make(chan *net.TCPConn, 1), make(chan struct{})
			w.name("sink.default", serveTCP(t, func(nc *net.TCPConn) { accepted <- nc; <-release }))
			t.Cleanup(func() { close(release) })
			nc := mustConnect(t, w, "sink.default")
			gonetest.Vanish(t, <-accepted)
			_, _ = io.WriteString(nc, "into the void")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := dial.New(dial.ViaNetwork, dial.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close() //nolint:errcheck // its connections are closed
			w := newWorld(t, func(_ *world, cfg *Config) { cfg.Dialer, cfg.goneAfter = d, after })
			c.run(t, w)
			if r := w.ended(t, 1)[0]; r.Result != ResultAborted || !strings.Contains(r.Error, "the "+c.who+" is gone") {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestSlowIsNotGone: a client that reads nothing for longer than that, and one that says nothing, stay connected.
func TestSlowIsNotGone(t *testing.T) {
	t.Parallel()
	const after = time.Second
	w := newWorld(t, func(_ *world, cfg *Config) { cfg.goneAfter = after })
	const size = 16 << 20 // more than all buffers hold
	w.name("flood.default", serveTCP(t, func(nc *net.TCPConn) { _, _ = io.Copy(nc, io.LimitReader(zeros{}, size)) }))
	w.name("echo.default", serveTCP(t, echo))
	slow, silent := mustConnect(t, w, "flood.default"), mustConnect(t, w, "echo.default")
	time.Sleep(8 * after) // in which neither is cut off
	if n, err := io.Copy(io.Discard, slow); n != size || err != nil {
		t.Errorf("the slow client got %d bytes of %d, %v", n, size, err)
	}
	if _, err := io.WriteString(silent, "ping"); err != nil || readFull(t, silent, make([]byte, 4)) != "ping" {
		t.Errorf("the silent client is cut off: %v", err)
	}
	_ = slow.Close()
	_ = silent.Close()
	for _, r := range w.ended(t, 2) {
		if r.Result != ResultOK {
			t.Errorf("%+v", r)
		}
	}
}
