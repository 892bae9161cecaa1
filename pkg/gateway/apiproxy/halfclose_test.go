// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// slowAnswer is longer than socket buffers, and begins after the client's end has arrived.
const slowAnswer = 8 << 20

// TestHalfClose: a client that ends its direction once it has sent its request gets all of the
// answer, and is not counted as one that has gone.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	api := startAPIServer(t, func(w http.ResponseWriter, req *http.Request) {
		select {
		case <-req.Context().Done():
			return
		case <-time.After(2*goneEvery + 200*time.Millisecond):
		}
		_, _ = io.WriteString(w, strings.Repeat("x", slowAnswer))
	})
	registry := prometheus.NewRegistry()
	address, stop := serve(t, Options{Config: api.config(), Filter: defaults(t), Registry: registry}, 0)
	for _, text := range []string{get("/api", "localhost"), request(http.MethodPost, "/api", "localhost", "Content-Length: 4") + "body"} {
		c, r := dial(t, address, text)
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if n != slowAnswer || err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("status %d, %d bytes of %d, %v", resp.StatusCode, n, slowAnswer, err)
		}
		if rest, err := io.ReadAll(r); len(rest) > 0 || err != nil {
			t.Errorf("after the answer: %q, %v", rest, err)
		}
	}
	_ = stop()
	want := `
# HELP fairlead_proxy_requests_total Requests that have ended, by method and status; 499: the client went away, 0: the answer was cut short.
# TYPE fairlead_proxy_requests_total counter
fairlead_proxy_requests_total{code="200",method="GET"} 1
fairlead_proxy_requests_total{code="200",method="POST"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "fairlead_proxy_requests_total"); err != nil {
		t.Error(err)
	}
}

// TestHalfCloseOfUpgrade: an upgraded connection whose client ends its direction still returns
// everything, also if the client does so before the answer to the upgrade.
// It observes HTTP-08 of docs/requirements.md.
func TestHalfCloseOfUpgrade(t *testing.T) {
	address, _ := serve(t, Options{Config: startAPIServer(t).config(), Filter: filter(t, DefaultAcceptHosts, ".*", "", "")}, 0)
	data := strings.Repeat("data", 100_000)
	for name, early := range map[string]bool{"before the answer": true, "after the answer": false} {
		text := upgrade("/pods/p/exec")
		if early {
			text += data
		}
		c, r := dial(t, address, text)
		if !early {
			switched(t, r)
			go func() { _, _ = io.WriteString(c, data); _ = c.(*net.TCPConn).CloseWrite() }()
		} else {
			_ = c.(*net.TCPConn).CloseWrite()
			switched(t, r)
		}
		if got, err := io.ReadAll(r); string(got) != data || err != nil {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(data), err)
		}
	}
}

// TestClientGone: the request to the API server ends when the client does: that of a stream at
// once, that of another request as soon as the client's system says so.
func TestClientGone(t *testing.T) {
	began, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	api := startAPIServer(t, func(_ http.ResponseWriter, req *http.Request) {
		began <- struct{}{}
		<-req.Context().Done()
		ended <- struct{}{}
	})
	registry := prometheus.NewRegistry()
	address, stop := serve(t, Options{Config: api.config(), Filter: defaults(t), Registry: registry}, 0)
	leave := func(name, path string, reset bool, within time.Duration) {
		t.Helper()
		c, _ := dial(t, address, get(path, "localhost"))
		<-began
		if reset {
			_ = c.(*net.TCPConn).SetLinger(0)
		}
		_ = c.Close()
		select {
		case <-ended:
		case <-time.After(within):
			t.Errorf("%s: the request goes on after %v", name, within)
			api.CloseClientConnections()
			<-ended
		}
	}
	streams := 0
	for _, value := range []string{"=true", "=True", "=1", "=yes", "=", ""} { // the Python client sends True
		streams += 2
		leave("a watch", "/api/v1/pods?watch"+value, false, bound)
		leave("a followed log", "/api/v1/namespaces/x/pods/p/log?follow"+value, false, bound)
	}
	for _, path := range []string{"/api/v1/watch/pods", "/apis/apps/v1/watch/namespaces/x/deployments"} {
		streams++
		leave("a watch by its path", path, false, bound)
	}
	leave("a request that is reset", "/api", true, bound)
	_ = stop()
	want := fmt.Sprintf(`
# HELP fairlead_proxy_requests_total Requests that have ended, by method and status; 499: the client went away, 0: the answer was cut short.
# TYPE fairlead_proxy_requests_total counter
fairlead_proxy_requests_total{code="499",method="GET"} %d
`, streams+1)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "fairlead_proxy_requests_total"); err != nil {
		t.Error(err)
	}
}

// TestHalfCloseByAPIServer: an upgraded connection whose API server ends its direction still
// carries what the client sends.
func TestHalfCloseByAPIServer(t *testing.T) {
	received := make(chan string, 1)
	api := startAPIServer(t, func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nall")
		_ = rw.Flush()
		_ = closeWrite(c)
		data, _ := io.ReadAll(rw)
		received <- string(data)
	})
	address, _ := serve(t, Options{Config: api.config(), Filter: filter(t, DefaultAcceptHosts, ".*", "", "")}, 0)
	c, r := dial(t, address, upgrade("/pods/p/attach"))
	switched(t, r)
	if got, err := io.ReadAll(r); string(got) != "all" || err != nil {
		t.Fatalf("the client got %q, %v", got, err)
	}
	_, _ = io.WriteString(c, "after the end")
	_ = closeWrite(c)
	select {
	case got := <-received:
		if got != "after the end" {
			t.Errorf("the API server got %q", got)
		}
	case <-time.After(bound):
		t.Error("the API server gets nothing")
	}
}
