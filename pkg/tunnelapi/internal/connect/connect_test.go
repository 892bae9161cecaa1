// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	metricstest "k8s.io/component-base/metrics/testutil"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/internal/wsconn"
)

const patience = 30 * time.Second

var allRights = []string{"create tunnelagents/portforward  a1", "connect destinations/services web svc:80"}

// TestHalfClose: bytes pass in both directions, and the end of one arrives alone.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c net.Conn) {
		got, err := io.ReadAll(c)
		_, _ = fmt.Fprintf(c, "%d %v", len(got), err)
	}, nil, allRights...)
	c := w.must()
	if _, err := c.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "1048576 <nil>" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestResets: a reset of the destination arrives as a reset, after what was sent before it, and that of the client too.
func TestResets(t *testing.T) {
	t.Parallel()
	sawReset := make(chan error, 1)
	w := newWorld(t, func(c net.Conn) {
		kind := make([]byte, 1)
		_, _ = io.ReadFull(c, kind)
		if kind[0] == 'r' {
			_ = c.(*net.TCPConn).SetLinger(0)
			return
		}
		_, err := io.Copy(io.Discard, c)
		sawReset <- err
	}, nil, allRights...)
	c := w.must()
	if _, err := c.Write([]byte("r")); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); !errors.Is(err, wsconn.ErrReset) {
		t.Errorf("a reset destination: %q, %v", got, err)
	}
	c = w.must()
	if _, err := c.Write([]byte("w")); err != nil {
		t.Fatal(err)
	}
	c.Abort("client")
	select {
	case err := <-sawReset:
		if err == nil {
			t.Error("the reset of a client arrives as an orderly end")
		}
	case <-time.After(patience):
		t.Error("the reset of a client does not arrive")
	}
}

// TestRefusals: each request that may not open a connection has its status and reason, and none reaches the destination.
func TestRefusals(t *testing.T) {
	t.Parallel()
	reached := make(chan struct{}, 100)
	w := newWorld(t, func(net.Conn) { reached <- struct{}{} }, nil, "create tunnelagents/portforward  a1", "connect destinations/services web svc:81",
		"connect destinations/services web none", "connect destinations/addresses  192.0.2.7")
	for name, c := range map[string]struct {
		host string
		port int
		code int32
		text string
	}{
		"no right to the port":        {"svc.web.svc", 80, 403, "destinations/services"},
		"no right to an address":      {"192.0.2.8", 81, 403, "destinations/addresses"},
		"loopback":                    {"127.0.0.1", 81, 403, "denied"},
		"mapped loopback":             {"::ffff:127.0.0.1", 81, 403, "denied"},
		"metadata":                    {"169.254.169.254", 80, 403, "denied"},
		"unspecified":                 {"0.0.0.0", 80, 403, "denied"},
		"unknown":                     {"none.web.svc", 80, 404, "no name"},
		"unknown, without the right":  {"other.web.svc", 80, 403, "denied"},
		"an address that is not dial": {"192.0.2.7", 81, 503, "dial of 192.0.2.7:81"},
		"no host":                     {"", 80, 400, "host and port"},
		"no port":                     {"svc.web.svc", 0, 400, "host and port"},
		"too great a port":            {"svc.web.svc", 65536, 400, "host and port"},
	} {
		if _, s := w.dial("alice", c.host, c.port); s == nil || s.Code != c.code || !strings.Contains(s.Message, c.text) {
			t.Errorf("%s: %+v", name, s)
		}
	}
	w.rights = map[string]bool{"get tunnelagents/portforward  a1": true, "connect destinations/services web svc": true}
	if _, s := w.dial("alice", "svc.web.svc", 80); s == nil || s.Code != 403 || !strings.Contains(s.Message, "needs the verb create") {
		t.Errorf("a reader: %+v", s)
	}
	w.askErr = errors.New("connection refused")
	for _, right := range []string{"", "create tunnelagents/portforward  a1"} { // who can be asked about neither, or only about this
		w.rights = map[string]bool{right: true}
		_, s := w.dial("alice", "svc.web.svc", 80)
		if s == nil || s.Code != 503 || s.Details == nil || len(s.Details.Causes) != 1 || s.Details.Causes[0].Type != metav1.CauseType(gateway.ReasonPathDown) {
			t.Errorf("kube-apiserver cannot be asked for more than %q: %+v", right, s)
		}
	}
	select {
	case <-reached:
		t.Error("a refused request has reached the destination")
	default:
	}
}

// TestNotWebSocket: requests of other clients are refused before anything is resolved or dialed.
func TestNotWebSocket(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo, func(c *Config) { c.Resolver = nil }, allRights...)
	for name, header := range map[string]http.Header{
		"plain":          {},
		"no key":         {"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Protocol": {wsconn.Protocol}},
		"short key":      {"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"AAAA"}, "Sec-Websocket-Protocol": {wsconn.Protocol}},
		"other version":  {"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"8"}, "Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="}, "Sec-Websocket-Protocol": {wsconn.Protocol}},
		"other origin":   {"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="}, "Sec-Websocket-Protocol": {wsconn.Protocol}, "Origin": {"https://example.com"}},
		"no protocol":    {"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="}},
		"other protocol": {"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="}, "Sec-Websocket-Protocol": {"v4.channel.k8s.io"}},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"?user=alice&host=svc.web.svc&port=80", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", name, resp.Status)
		}
	}
}

// TestLimits: connections above the limits of a user and of the server are refused, and a connection that has ended makes
// room.
func TestLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo, func(c *Config) { c.MaxConnections, c.MaxPerUser = 3, 2 }, allRights...)
	dial := func(user string) (*wsconn.Conn, bool) {
		c, s := w.dial(user, "svc.web.svc", 80)
		if s != nil && (s.Code != http.StatusTooManyRequests || s.Details.Causes[0].Type != metav1.CauseType(gateway.ReasonBusy)) {
			t.Errorf("%+v", s)
		}
		return c, s == nil
	}
	first, ok1 := dial("alice")
	_, ok2 := dial("alice")
	_, ok3 := dial("alice")
	_, ok4 := dial("bob")
	_, ok5 := dial("bob")
	if got := []bool{ok1, ok2, ok3, ok4, ok5}; fmt.Sprint(got) != "[true true false true false]" {
		t.Fatalf("connections: %v", got)
	}
	_ = first.Close()
	testutil.Eventually(t, patience, func() error {
		if _, ok := dial("bob"); !ok {
			return errors.New("a connection that has ended makes no room")
		}
		return nil
	})
}

// TestChecksAreBounded: requests whose rights are being asked for have a limit, and take no places of connections.
func TestChecksAreBounded(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	w := newWorld(t, echo, func(c *Config) {
		c.MaxPerUser, c.Create = 1, authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetUser().GetName() == "slow" {
				begun <- struct{}{}
				<-end
			}
			return authorizer.DecisionAllow, "", nil
		})
	}, allRights...)
	over := make(chan *metav1.Status, 1)
	go func() {
		_, s := w.dial("slow", "svc.web.svc", 80)
		over <- s
	}()
	<-begun
	if _, s := w.dial("slow", "svc.web.svc", 80); s == nil || s.Code != http.StatusTooManyRequests || strings.Contains(s.Message, "open connections") {
		t.Errorf("a second request: %+v", s)
	}
	if _, s := w.dial("alice", "svc.web.svc", 80); s != nil {
		t.Errorf("another user: %+v", s)
	}
	close(end)
	if s := <-over; s != nil {
		t.Errorf("the first request: %+v", s)
	}
}

// TestRefusedIsCounted: a request for an agent that does not exist counts.
func TestRefusedIsCounted(t *testing.T) {
	w := newWorld(t, echo, nil)
	count := func() float64 {
		n, err := metricstest.GetCounterMetricValue(connections.WithLabelValues("unknown", string(gateway.ReasonNotFound)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	w.h.Refused(t.Context(), "gone", &v1alpha1.TunnelAgentConnectOptions{Host: "svc.web.svc", Port: 80}, apierrors.NewNotFound(v1alpha1.Resource("tunnelagents"), "gone"))
	if got := count() - before; got != 1 {
		t.Errorf("counted %v times", got)
	}
}

// TestBoundedMemory: a client that reads nothing stops the destination, which gets rid of no more than buffers hold.
func TestBoundedMemory(t *testing.T) {
	t.Parallel()
	sent := make(chan int64, 1)
	w := newWorld(t, func(c net.Conn) {
		_ = c.SetWriteDeadline(time.Now().Add(2 * time.Second))
		var n int64
		for block := make([]byte, 1<<20); n < 1<<30; {
			m, err := c.Write(block)
			n += int64(m)
			if err != nil {
				break
			}
		}
		sent <- n
	}, nil, allRights...)
	w.must()
	// Four socket buffers of the loopback device hold up to some MiB each.
	if n := <-sent; n > 64<<20 {
		t.Errorf("the destination got rid of %d MiB", n>>20)
	}
}

// TestIdle: a connection without bytes ends after its time, and one with bytes does not.
func TestIdle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo, func(c *Config) { c.PingInterval, c.IdleTimeout = 20*time.Millisecond, 3*time.Second }, allRights...)
	busy, idle := w.must(), w.must()
	ended := make(chan error, 1)
	go func() {
		_, err := idle.Read(make([]byte, 1))
		ended <- err
	}()
	for begin := time.Now(); time.Since(begin) < 7*time.Second; time.Sleep(50 * time.Millisecond) { // twice the time after which it would end
		if _, err := busy.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(busy, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-ended:
		if !errors.Is(err, wsconn.ErrReset) || !strings.Contains(err.Error(), "no bytes for") {
			t.Errorf("%v", err)
		}
	case <-time.After(patience):
		t.Error("the idle connection stays")
	}
}

// TestIdleReader: a connection whose client reads nothing ends after its time, though a write to it does not return.
func TestIdleReader(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	w := newWorld(t, func(c net.Conn) {
		for block := make([]byte, 1<<20); ; {
			if _, err := c.Write(block); err != nil {
				close(ended)
				return
			}
		}
	}, func(c *Config) { c.PingInterval, c.IdleTimeout = 20*time.Millisecond, time.Second }, allRights...)
	w.must()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the connection whose client reads nothing stays")
	}
}

// TestDrain: a server that stops takes no new connections, lets open ones end, and resets those that do not.
func TestDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo, nil, allRights...)
	ending, staying := w.must(), w.must()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		w.h.Drain(ctx)
		close(done)
	}()
	testutil.Eventually(t, patience, func() error {
		if _, s := w.dial("alice", "svc.web.svc", 80); s == nil || s.Code != http.StatusServiceUnavailable {
			return errors.New("a server that stops takes connections")
		}
		return nil
	})
	if _, err := ending.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	if err := ending.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(ending); err != nil || !bytes.Equal(got, []byte("last words")) {
		t.Errorf("%q, %v", got, err)
	}
	select {
	case <-done:
		t.Fatal("the server does not wait for a connection")
	default:
	}
	cancel()
	if _, err := staying.Read(make([]byte, 1)); !errors.Is(err, wsconn.ErrReset) || !strings.Contains(err.Error(), "stops") {
		t.Errorf("%v", err)
	}
	select {
	case <-done:
	case <-time.After(patience):
		t.Error("the server does not stop")
	}
}

// TestPortsOfRules: a right to the name of a Service alone is one to all its ports.
func TestPortsOfRules(t *testing.T) {
	w := newWorld(t, echo, nil, "create tunnelagents/portforward  a1", "connect destinations/services web svc")
	if _, s := w.dial("alice", "svc.web.svc", 80); s != nil {
		t.Errorf("%+v", s)
	}
}
