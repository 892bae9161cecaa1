// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/auth"
)

func TestMain(m *testing.M) {
	if args := os.Getenv(asNetcat); args != "" {
		os.Exit(netcat(args))
	}
	testutil.Parallel(16) // most tests wait most of the time
	testutil.VerifyNoLeaks(m)
}

// The login of each server that newWorld starts.
const (
	testUser     = "alice"
	testPassword = "correct horse"
)

// world is a server with a resolver that knows some names, a dialer of this machine's
// network and an authorizer that denies what a test names.
type world struct {
	*Server
	addr    string
	names   map[string]netip.AddrPort
	mu      sync.Mutex
	asked   []string // hosts in the order in which clients asked for them
	records []Record
	deny    func(user.Info, gateway.Destination) error
	dial    func(context.Context, gateway.Destination) (gateway.Conn, error)
}

// name gives an address a name.
func (w *world) name(host string, addr netip.AddrPort) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[host] = addr
}

func (w *world) Resolve(_ context.Context, host string, port uint16) (gateway.Destination, error) {
	w.mu.Lock()
	w.asked = append(w.asked, host)
	addr, ok := w.names[host]
	w.mu.Unlock()
	d := gateway.Destination{Host: host, Port: port, Kind: gateway.KindService, Namespace: "default", Name: host}
	if a, err := netip.ParseAddr(host); err == nil {
		d.Kind, d.Addr = gateway.KindExternal, netip.AddrPortFrom(a, port)
		return d, nil
	}
	if !ok {
		return d, gateway.Errorf(gateway.ReasonNotFound, "check the name", "no Service %q", host)
	}
	d.Addr = addr
	return d, nil
}

func (w *world) Authorize(_ context.Context, u user.Info, d gateway.Destination) error {
	if w.deny != nil {
		return w.deny(u, d)
	}
	return nil
}

func (w *world) Dial(ctx context.Context, d gateway.Destination) (gateway.Conn, error) {
	w.mu.Lock()
	dial := w.dial
	w.mu.Unlock()
	if dial != nil {
		return dial(ctx, d)
	}
	var nd net.Dialer
	nc, err := nd.DialContext(ctx, "tcp", d.Addr.String())
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, gateway.Errorf(gateway.ReasonRefused, "", "dial %s: %w", d, err)
	case err != nil:
		return nil, gateway.Errorf(gateway.ReasonHostUnreachable, "", "dial %s: %w", d, err)
	}
	return nc.(*net.TCPConn), nil
}

func (w *world) hosts() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.asked...)
}

// ended waits until n connections have ended and returns their records.
func (w *world) ended(t *testing.T, n int) []Record {
	t.Helper()
	var all []Record
	daemontest.Eventually(t, time.Minute, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if all = slices.Clone(w.records); len(all) < n {
			return fmt.Errorf("%d connections have ended, want %d: %+v", len(all), n, all)
		}
		return nil
	})
	return all
}

// newWorld starts a server on loopback. cfg may be changed before it starts.
func newWorld(t *testing.T, change ...func(*world, *Config)) *world {
	t.Helper()
	password, err := auth.NewPassword(auth.Login{Name: testUser, Password: testPassword})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{names: map[string]netip.AddrPort{}}
	cfg := Config{
		Resolver: w, Authorizer: w, Dialer: w, Authenticator: &auth.Authenticator{Password: password}, FailureDelay: time.Millisecond,
		Audit: func(r Record) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.records = append(w.records, r)
		},
	}
	for _, f := range change {
		f(w, &cfg)
	}
	w.Server = NewServer(cfg)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr = l.Addr().String()
	done := make(chan error, 1)
	go func() { done <- w.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := w.Shutdown(ctx); err != nil {
			t.Errorf("connections are still open at the end: %v", err)
		}
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
	return w
}

// serveTCP serves each connection with f and returns the address.
func serveTCP(t *testing.T, f func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	testutil.Serve(t, l, func(nc net.Conn) { f(nc.(*net.TCPConn)) })
	return netip.MustParseAddrPort(l.Addr().String())
}

// echo sends back what it gets, up to its end.
func echo(nc *net.TCPConn) {
	_, _ = io.Copy(nc, nc)
	_ = nc.CloseWrite()
}

// countAtEnd reads to the end and only then answers, which needs the end of the client's
// direction to arrive while the other one is open.
func countAtEnd(nc *net.TCPConn) {
	n, _ := io.Copy(io.Discard, nc)
	_, _ = io.WriteString(nc, "got "+strconv.FormatInt(n, 10))
}

// anonymous lets clients in that have no credentials.
func anonymous(_ *world, cfg *Config) {
	cfg.Authenticator = &auth.Authenticator{Anonymous: &user.DefaultInfo{Name: user.Anonymous}}
}

// setDial has each dial fail.
func (w *world) setDial(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dial = func(context.Context, gateway.Destination) (gateway.Conn, error) { return nil, err }
}
