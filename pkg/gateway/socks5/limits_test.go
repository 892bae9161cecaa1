// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/things-go/go-socks5/statute"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestSilentClients: a thousand clients that say nothing, or stop in the middle, are closed
// by the handshake timeout, while another one is served; goroutines and memory return. It is not parallel, because it measures the
// process.
func TestSilentClients(t *testing.T) {
	if DefaultHandshakeTimeout > 10*time.Second {
		t.Errorf("silent clients are kept for %v by default", DefaultHandshakeTimeout)
	}
	const clients = 1000
	w := newWorld(t, func(_ *world, cfg *Config) { cfg.HandshakeTimeout = 2 * time.Second })
	w.name("echo.default", serveTCP(t, echo))
	beside := mustConnect(t, w, "echo.default")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()
	silent := make([]net.Conn, clients)
	for i := range silent {
		nc, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		silent[i] = nc
		_, _ = io.WriteString(nc, []string{"", "\x05", greetAndLogin(), "CONNECT x:1 HTTP/1.1\r\nX: y"}[i%4])
	}
	for _, nc := range silent {
		_ = nc.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.Copy(io.Discard, nc); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("a silent client is still connected: %v", err)
		}
		_ = nc.Close()
	}
	w.ended(t, clients)
	daemontest.Eventually(t, time.Minute, func() error {
		if w.Open() > 1 {
			return errors.New("more connections are open")
		}
		return nil
	})
	if _, err := io.WriteString(beside, "ping"); err != nil || readFull(t, beside, make([]byte, 4)) != "ping" {
		t.Error("the connection beside was disturbed")
	}
	clear(silent)
	w.mu.Lock()
	w.records = nil
	w.mu.Unlock()
	daemontest.Eventually(t, time.Minute, func() error { // closed connections take more than one collection
		runtime.GC()
		runtime.ReadMemStats(&after)
		n := runtime.NumGoroutine()
		if n > goroutines+10 || after.HeapAlloc > before.HeapAlloc+2<<20 { // one buffer each would be 4 MiB
			return fmt.Errorf("%d goroutines and %d bytes of heap, %d and %d before", n, after.HeapAlloc, goroutines, before.HeapAlloc)
		}
		return nil
	})
	_ = beside.Close()
}

// TestLimits: above a limit a client learns that the proxy is busy, by both protocols; far
// above it connections are closed at once; one that ends makes room.
func TestLimits(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*world, *Config){
		"process": func(_ *world, cfg *Config) { cfg.MaxConns = 2 },
		"client":  func(_ *world, cfg *Config) { cfg.MaxConnsPerClient = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			w := newWorld(t, change, func(_ *world, cfg *Config) { cfg.Metrics = NewMetrics(registry) })
			w.name("echo.default", serveTCP(t, echo))
			first, second := mustConnect(t, w, "echo.default"), mustConnect(t, w, "echo.default")
			if got := talk(t, w.addr, greetAndLogin()+socksRequest(1, "echo.default", 7)); got != loggedIn+reply(statute.RepServerFailure) {
				t.Errorf("%q", got)
			}
			if got := talk(t, w.addr, "CONNECT echo.default:7 HTTP/1.1\r\n"+right()+"\r\n"); !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.Contains(got, "(busy)") {
				t.Errorf("%q", got)
			}
			for _, r := range w.ended(t, 2) {
				if r.Result != "busy" {
					t.Errorf("%+v", r)
				}
			}
			var waiting []net.Conn
			for range maxRefusing {
				nc, err := net.Dial("tcp", w.addr)
				if err != nil {
					t.Fatal(err)
				}
				waiting = append(waiting, nc)
			}
			daemontest.Eventually(t, time.Minute, func() error {
				if w.Open() < maxRefusing+2 {
					return errors.New("fewer connections are open")
				}
				return nil
			})
			nc, err := net.Dial("tcp", w.addr)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := nc.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Error("a connection far above the limit is served")
			}
			_ = nc.Close()
			for _, nc := range waiting {
				_ = nc.Close()
			}
			_ = first.Close()
			w.ended(t, 2+maxRefusing+1)
			daemontest.Eventually(t, time.Minute, func() error {
				if w.Open() > 1 {
					return errors.New("more connections are open")
				}
				return nil
			})
			_ = mustConnect(t, w, "echo.default").Close()
			_ = second.Close()
		})
	}
}

// TestStrangersMakeRoom: clients that never complete their handshake, from as many addresses
// as it takes, keep no other client out: the oldest of them is closed for each new client. Those
// that have completed it stay.
func TestStrangersMakeRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, cfg *Config) { cfg.MaxConns, cfg.HandshakeTimeout = 20, time.Minute })
	w.name("echo.default", serveTCP(t, echo))
	beside := mustConnect(t, w, "echo.default")
	var silent []net.Conn
	for range 3 * minStrangers {
		nc, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, nc)
	}
	for _, r := range w.ended(t, 2*minStrangers) {
		if r.Result != "busy" || !strings.Contains(r.Error, "did not complete the handshake") {
			t.Errorf("%+v", r)
		}
	}
	later := mustConnect(t, w, "echo.default")
	for name, nc := range map[string]net.Conn{"before": beside, "after": later} {
		if _, err := io.WriteString(nc, "ping"); err != nil || readFull(t, nc, make([]byte, 4)) != "ping" {
			t.Errorf("the connection made %s the silent ones does not work: %v", name, err)
		}
		_ = nc.Close()
	}
	for _, nc := range silent {
		_ = nc.Close()
	}
}

// TestOneClientMakesRoomForItself: silent connections of one client do not end the handshake of
// another one, however slow that is.
func TestOneClientMakesRoomForItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, cfg *Config) { cfg.MaxConns, cfg.HandshakeTimeout = 20, time.Minute })
	w.name("echo.default", serveTCP(t, echo))
	other := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	slow, err := other.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	all := greetAndLogin() + socksRequest(1, "echo.default", 7)
	if _, err := io.WriteString(slow, all[:2]); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, time.Minute, func() error {
		if w.Open() < 1 {
			return errors.New("fewer connections are open")
		}
		return nil
	})
	for range 3 * minStrangers {
		nc, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
	}
	w.ended(t, 2*minStrangers)
	if _, err := io.WriteString(slow, all[2:]+"ping"); err != nil {
		t.Fatal(err)
	}
	want := loggedIn + reply(statute.RepSuccess) + "ping"
	if got := readFull(t, slow, make([]byte, len(want))); got != want {
		t.Errorf("%q came, want %q", got, want)
	}
}

// TestClientOf: the addresses of one IPv6 host count as one client, IPv4 addresses do not
// share a count, in any form.
func TestClientOf(t *testing.T) {
	t.Parallel()
	of := func(text string) netip.Prefix {
		return clientOf(&addressed{addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text))})
	}
	if of("[2001:db8::1]:1") != of("[2001:db8::ffff:2]:2") || of("[2001:db8::1]:1") == of("[2001:db8:0:1::1]:1") {
		t.Error("IPv6 clients are not counted by their networks")
	}
	if of("192.0.2.1:1") != of("[::ffff:192.0.2.1]:2") || of("192.0.2.1:1") == of("192.0.2.2:1") {
		t.Error("IPv4 clients are not counted by their addresses")
	}
}

type addressed struct {
	net.Conn
	addr net.Addr
}

func (a *addressed) RemoteAddr() net.Addr { return a.addr }

// TestWrongPasswordIsDelayed: the answer to a wrong password takes the delay at least, and
// the failure is counted.
func TestWrongPasswordIsDelayed(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	const delay = 100 * time.Millisecond
	w := newWorld(t, func(_ *world, cfg *Config) { cfg.FailureDelay, cfg.Metrics = delay, NewMetrics(registry) })
	for _, text := range []string{"\x05\x01\x02\x01\x05alice\x05wrong", "CONNECT x:1 HTTP/1.1\r\n" + basic("alice:wrong") + "\r\n"} {
		start := time.Now()
		_ = talk(t, w.addr, text)
		if took := time.Since(start); took < delay {
			t.Errorf("answered after %v", took)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "fairlead_socks5_authentication_failures_total" {
			for _, m := range f.GetMetric() {
				found[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if found["socks5"] != 1 || found["http"] != 1 {
		t.Errorf("%v", found)
	}
}

// TestShutdown: open connections go on during the grace period and new ones are refused;
// when it is over, those that are still open are reset. It is not parallel: another test might get its port.
func TestShutdown(t *testing.T) {
	w := newWorld(t)
	w.name("echo.default", serveTCP(t, echo))
	ends, stays := mustConnect(t, w, "echo.default"), mustConnect(t, w, "echo.default")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Shutdown(ctx) }()
	for {
		nc, err := net.Dial("tcp", w.addr)
		if err != nil {
			break
		}
		_ = nc.Close()
	}
	_, _ = io.WriteString(ends, "still served")
	_ = ends.CloseWrite()
	if got, err := io.ReadAll(ends); string(got) != "still served" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	if _, err := io.ReadAll(stays); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection that outlived the grace period: %v", err)
	}
	if r := w.ended(t, 2); w.Open() != 0 {
		t.Errorf("%+v", r)
	}
}
