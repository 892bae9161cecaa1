// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestLimitOfUsers: clients with tokens count by their user and not by their address, because behind one address
// there may be many users: each has the limit of one client, and the clients of the one password have that of
// their address. Connections that end make room.
func TestLimitOfUsers(t *testing.T) {
	t.Parallel()
	var metrics *Metrics
	w := newWorld(t, func(_ *world, cfg *Config) {
		cfg.MaxConnsPerClient, cfg.Metrics = 2, NewMetrics(nil)
		metrics = cfg.Metrics
		cfg.Authenticator.Tokens = authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: token}}, true, nil
		})
	})
	w.name("echo.default", serveTCP(t, echo))
	open := func(header string) (net.Conn, string) {
		nc, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(nc, "CONNECT echo.default:7 HTTP/1.1\r\n"+header+"\r\n")
		line, err := bufio.NewReader(nc).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return nc, line
	}
	bearer := func(name string) string { return "Proxy-Authorization: Bearer " + name + "\r\n" }
	succeeds := func(header string) net.Conn {
		nc, line := open(header)
		if !strings.HasPrefix(line, "HTTP/1.1 200 ") {
			t.Errorf("%q within the limits: %s", header, line)
		}
		return nc
	}
	fails := func(header string) {
		if _, line := open(header); !strings.HasPrefix(line, "HTTP/1.1 503 ") {
			t.Errorf("%q above the limit: %s", header, line)
		}
	}
	succeeds(bearer("bob"))
	succeeds(bearer("bob"))
	succeeds(bearer("alice"))
	ofAlice := succeeds(bearer("alice"))
	fails(bearer("alice"))
	fails(bearer("bob"))
	if n := testutil.ToFloat64(metrics.rejected); n != 2 { // which the alert SOCKS5Full watches
		t.Errorf("the metric counts %v connections above the limit of their user, want 2", n)
	}
	_ = ofAlice.Close()
	busy := 0
	for _, r := range w.ended(t, 3) {
		if r.Result == "busy" && strings.Contains(r.Error, "has too many connections") {
			busy++
		}
	}
	if busy != 2 {
		t.Errorf("%d connections were above the limit of their user, want 2", busy)
	}
	daemontest.Eventually(t, time.Minute, func() error {
		if w.Open() > 3 {
			return errors.New("more connections are open")
		}
		return nil
	})
	succeeds(bearer("alice"))
	succeeds(right())
	succeeds(right())
	fails(right())
}

// TestSilentNeighbors: silent connections that take all places of an address keep no client behind that address out, which has
// to log in before it counts as a user. They make room for it, the oldest first. Connections that have completed their
// handshake stay, and one more than these gets the answer that the proxy is busy.
func TestSilentNeighbors(t *testing.T) {
	t.Parallel()
	const places = 4
	metrics := NewMetrics(nil)
	w := newWorld(t, func(_ *world, cfg *Config) {
		cfg.MaxConnsPerClient, cfg.HandshakeTimeout, cfg.Metrics = places, time.Minute, metrics
	})
	w.name("echo.default", serveTCP(t, echo))
	open := []*net.TCPConn{mustConnect(t, w, "echo.default")}
	for range 2 * places {
		nc, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
	}
	for range places - 1 {
		open = append(open, mustConnect(t, w, "echo.default"))
	}
	const closed = 2 * places // each of the silent ones
	for _, r := range w.ended(t, closed) {
		if r.Result != "busy" || !strings.Contains(r.Error, "did not complete the handshake") {
			t.Errorf("%+v", r)
		}
	}
	for i, nc := range open {
		if _, err := io.WriteString(nc, "ping"); err != nil || readFull(t, nc, make([]byte, 4)) != "ping" {
			t.Errorf("connection %d does not work: %v", i, err)
		}
	}
	if got := talk(t, w.addr, "CONNECT echo.default:7 HTTP/1.1\r\n"+right()+"\r\n"); !strings.Contains(got, "(busy)") {
		t.Errorf("one more: %q", got)
	}
	if n := testutil.ToFloat64(metrics.rejected); n != closed+1 {
		t.Errorf("the metric counts %v connections that made room or were refused, want %d", n, closed+1)
	}
	for _, nc := range open {
		_ = nc.Close()
	}
	daemontest.Eventually(t, time.Minute, func() error {
		if w.Open() > 0 {
			return fmt.Errorf("%d connections are open", w.Open())
		}
		return nil
	})
	_ = mustConnect(t, w, "echo.default").Close()
}
