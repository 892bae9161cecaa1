// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/httplimits"
)

// started serves by f on a free port until the test ends, and returns the address.
func started(t *testing.T, f func(ctx context.Context, port int) error) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	for range 10 { // another process may take the port in between
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().(*net.TCPAddr)
		_ = l.Close()
		if f(ctx, addr.Port) == nil {
			return addr.String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// ask makes a request on a connection of its own, which stays open.
func ask(t *testing.T, addr, headers string) (net.Conn, int) {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	_, _ = fmt.Fprintf(nc, "GET /healthz HTTP/1.1\r\nHost: x\r\n%s\r\n", headers)
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		return nc, 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return nc, resp.StatusCode
}

// TestServeIsLimited: the listeners of the programs refuse large headers, close idle
// connections and those above the limit.
func TestServeIsLimited(t *testing.T) {
	if err := Serve(context.Background(), "test", "127.0.0.1", -1, http.NotFoundHandler()); err == nil {
		t.Error("a port that does not exist is no error")
	}
	addr := started(t, func(ctx context.Context, port int) error {
		return Serve(ctx, "test", "127.0.0.1", port, http.HandlerFunc(OK))
	})
	large := "X-Filler: " + strings.Repeat("x", 24<<10) + "\r\n" // net/http adds 4 KiB to the limit
	if _, status := ask(t, addr, large); status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("24 KiB of headers: status %d", status)
	}
	// Beyond the limit, the connections that have waited longest make room for a probe.
	for i := range httplimits.Short.Conns + 10 {
		if _, status := ask(t, addr, ""); status != http.StatusOK {
			t.Fatalf("request %d, with idle connections before it: status %d", i, status)
		}
	}
}

// TestServeTimes: each time that a connection may take is bounded.
func TestServeTimes(t *testing.T) {
	const short = 200 * time.Millisecond
	for name, c := range map[string]struct {
		bound func(*httplimits.Limits)
		send  string
	}{
		"idle":    {func(l *httplimits.Limits) { l.Idle = short }, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
		"headers": {func(l *httplimits.Limits) { l.ReadHeader = short }, "GET / HTTP/1.1\r\n"},
		"body":    {func(l *httplimits.Limits) { l.Read = short }, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			limits := httplimits.Limits{ReadHeader: time.Hour, Read: time.Hour, Write: time.Hour, Idle: time.Hour, HeaderBytes: 16 << 10, Conns: 10}
			c.bound(&limits)
			addr := started(t, func(ctx context.Context, port int) error {
				return serve(ctx, "test", "127.0.0.1", port, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					n, _ := io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(w, strconv.FormatInt(n, 10))
				}), limits)
			})
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			_ = nc.SetDeadline(time.Now().Add(time.Minute))
			_, _ = io.WriteString(nc, c.send)
			if _, err := io.Copy(io.Discard, nc); err != nil {
				t.Errorf("the connection stays: %v", err)
			}
		})
	}
}

// TestSlowProfile: the timeout for reading requests does not cut a profile short.
func TestSlowProfile(t *testing.T) {
	limits := httplimits.Short
	limits.Read = 100 * time.Millisecond
	addr := started(t, func(ctx context.Context, port int) error {
		return serve(ctx, "test", "127.0.0.1", port, Admin(http.NotFoundHandler(), true, false), limits)
	})
	start := time.Now()
	resp, err := http.Get("http://" + addr + "/debug/pprof/trace?seconds=1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if took := time.Since(start); err != nil || took < time.Second {
		t.Errorf("a trace of 1 s ended after %v: %v", took, err)
	}
}
