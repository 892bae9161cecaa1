// SPDX-License-Identifier: Apache-2.0

package httplimits

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }

// serve serves with limits, and returns the address.
func serve(t *testing.T, h http.HandlerFunc, limits Limits) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := limits.Server(h)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(limits.Listener(l)) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return l.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	return nc
}

// TestUnfinishedRequests: requests whose headers never end are refused when they are
// large, and connections above the limit are closed, so that memory is bounded.
func TestUnfinishedRequests(t *testing.T) {
	const limit, attackers = 20, 60
	limits := Short
	limits.Conns = limit
	addr := serve(t, ok, limits)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	endless := append([]byte("GET /healthz HTTP/1.1\r\nHost: x\r\n"), bytes.Repeat([]byte("X-Filler: "+strings.Repeat("x", 1000)+"\r\n"), 960)...) // one for all clients, so that the heap is the server's
	var wg sync.WaitGroup
	for range attackers {
		nc := dial(t, addr)
		wg.Go(func() { _, _ = nc.Write(endless) })
		wg.Go(func() {
			// Refused with status 431, or closed; both while the request is unfinished.
			var ne net.Error
			if b, err := io.ReadAll(nc); err == nil && len(b) > 0 && !strings.Contains(string(b), " 431 ") {
				t.Errorf("the answer is %q", b)
			} else if errors.As(err, &ne) && ne.Timeout() {
				t.Error("the server waits for more than it may keep")
			}
		})
	}
	wg.Wait()
	runtime.ReadMemStats(&after)
	// All requests together are some 56 MiB, and what may be kept of them is below 2 MiB.
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 24<<20 {
		t.Errorf("the heap grew by %d KiB", grown>>10)
	}
	t.Logf("%d unfinished requests of %d bytes: the heap grew by %d KiB", attackers, len(endless), (int64(after.HeapInuse)-int64(before.HeapInuse))>>10)
}

// ask makes a request on a connection and reads the answer.
func ask(nc net.Conn, path string) error {
	_, _ = io.WriteString(nc, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	return err
}

// ended fails the test unless the server closes the connection.
func ended(t *testing.T, nc net.Conn) {
	t.Helper()
	var ne net.Error
	if _, err := io.Copy(io.Discard, nc); errors.As(err, &ne) && ne.Timeout() {
		t.Error("the connection stays")
	}
}

// busy is a handler whose answers to /busy take until the test ends.
func busy(t *testing.T) (h http.HandlerFunc, began <-chan struct{}) {
	t.Helper()
	in, stop := make(chan struct{}, 1000), make(chan struct{})
	t.Cleanup(func() { close(stop) })
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/busy" {
			in <- struct{}{}
			<-stop
		}
		ok(w, r)
	}, in
}

// from dials from an address of this machine.
func from(t *testing.T, ip, addr string) net.Conn {
	t.Helper()
	nc, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}).Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	return nc
}

// TestYield: a request that is worth no place makes room as if its connection waited, the oldest first, also for a connection of
// the same host. Afterwards its connection holds its place again.
func TestYield(t *testing.T) {
	const limit = 3
	limits := Long
	limits.Conns = limit
	yielded, release, held := make(chan struct{}, 10), make(chan struct{}), make(chan struct{}, 10)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			ok(w, r)
			return
		}
		end := Yield(r.Context())
		yielded <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
			return
		}
		end()
		held <- struct{}{}
		<-stop
	}, limits)
	wait := func(c <-chan struct{}) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(time.Minute):
			t.Fatal("a request is not served")
		}
	}
	var all []net.Conn
	for range limit {
		nc := dial(t, addr)
		_, _ = io.WriteString(nc, "GET /yields HTTP/1.1\r\nHost: x\r\n\r\n")
		wait(yielded)
		all = append(all, nc)
	}
	another := dial(t, addr)
	if err := ask(another, "/"); err != nil {
		t.Errorf("next to connections that yield: %v", err)
	}
	ended(t, all[0])
	_ = another.Close()
	for range limit - 1 {
		release <- struct{}{}
		wait(held)
	}
	another = dial(t, addr) // it takes the place that is left
	_, _ = io.WriteString(another, "GET /yields HTTP/1.1\r\nHost: x\r\n\r\n")
	wait(yielded)
	release <- struct{}{}
	wait(held)
	if err := ask(dial(t, addr), "/"); err == nil {
		t.Error("a connection takes the place of one that no longer yields")
	}
	Yield(t.Context())() // of a server without limits
}

// TestConnLimit: connections above the limit are closed at once while those below it are
// all being answered: a host cannot take places from itself.
func TestConnLimit(t *testing.T) {
	const limit = 3
	limits := Short
	limits.Conns = limit
	h, began := busy(t)
	addr := serve(t, h, limits)
	for range limit {
		_, _ = io.WriteString(dial(t, addr), "GET /busy HTTP/1.1\r\nHost: x\r\n\r\n")
		<-began
	}
	if err := ask(dial(t, addr), "/"); err == nil {
		t.Error("a connection above the limit is served")
	}
}

// TestIdleTimeout: connections without a request end after their time.
func TestIdleTimeout(t *testing.T) {
	limits := Short
	limits.Idle = 100 * time.Millisecond
	nc := dial(t, serve(t, ok, limits))
	if err := ask(nc, "/"); err != nil {
		t.Fatal(err)
	}
	ended(t, nc)
}

// TestProbePassesHeldPlaces: a probe is answered while a peer holds 200 connections, twice
// the limit, on which it sends nothing, half a request, or nothing more after one. So is
// one from another host while a peer reads none of its answers.
func TestProbePassesHeldPlaces(t *testing.T) {
	const held = 200
	half := "GET / HTTP/1.1\r\nHost: x\r\n"
	for name, c := range map[string]struct {
		send, wait string
		limits     Limits
		want       bool
	}{
		"silent":         {"", "", Short, true},
		"half a request": {half, "", Short, true},
		"idle":           {half + "\r\n", "HTTP/1.1 200", Short, true},
		"silent, long":   {"", "", Limits{Conns: Short.Conns}, true},
		// As one whose answers are not read. A log that is followed is none of these.
		"answered":       {strings.Replace(half, "/", "/busy", 1) + "\r\n", "", Short, true},
		"answered, long": {strings.Replace(half, "/", "/busy", 1) + "\r\n", "", Limits{Conns: Short.Conns}, false},
	} {
		t.Run(name, func(t *testing.T) {
			h, began := busy(t)
			addr := serve(t, h, c.limits)
			for i := range held {
				nc := from(t, "127.0.0.2", addr)
				_, _ = io.WriteString(nc, c.send)
				if strings.Contains(c.send, "/busy") && i < c.limits.conns() {
					<-began
				}
				if c.wait != "" {
					_, _ = io.ReadFull(nc, make([]byte, len(c.wait)))
				}
			}
			time.Sleep(100 * time.Millisecond) // the server has read what they sent
			for range 20 {
				if err := ask(from(t, "127.0.0.1", addr), "/"); (err == nil) != c.want {
					t.Fatalf("a probe: %v, want an answer: %v", err, c.want)
				}
			}
		})
	}
}

// TestHijackedKeepsItsPlace: a connection that a handler took over is none that waits.
func TestHijackedKeepsItsPlace(t *testing.T) {
	limits := Short
	limits.Conns = 2
	taken := make(chan net.Conn, 1)
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/take" {
			ok(w, r)
			return
		}
		nc, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		taken <- nc
	}, limits)
	far := dial(t, addr)
	_, _ = io.WriteString(far, "GET /take HTTP/1.1\r\nHost: x\r\n\r\n")
	near := <-taken
	defer near.Close()
	for range 10 {
		if err := ask(dial(t, addr), "/"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := near.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(far, make([]byte, 1)); err != nil {
		t.Errorf("the connection was closed: %v", err)
	}
}

// TestLong: an answer may take as long as it takes where limits say so, and the other
// bounds hold.
func TestLong(t *testing.T) {
	limits := Long
	limits.ReadHeader, limits.Idle = time.Second, time.Second
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(3 * time.Second): // three times as long as what is bounded
			ok(w, r)
		case <-r.Context().Done():
		}
	}, limits)
	nc := dial(t, addr)
	_, _ = io.WriteString(nc, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		t.Fatalf("an answer that takes long: %v", err)
	}
	if b, err := io.ReadAll(resp.Body); string(b) != "ok" {
		t.Errorf("the answer is %q, %v", b, err)
	}
	_ = resp.Body.Close()
	for name, text := range map[string]string{"headers": "GET / HTTP/1.1\r\nHost: x\r\n", "nothing": ""} {
		nc := dial(t, addr)
		_, _ = io.WriteString(nc, text)
		if _, err := io.Copy(io.Discard, nc); err != nil {
			t.Errorf("%s: the connection stays: %v", name, err)
		}
	}
}
