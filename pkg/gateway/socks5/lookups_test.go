// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/resolve"
)

// slowLists is an API server without objects, whose lists of Services by an address wait until release is called.
type slowLists struct {
	*httptest.Server
	client  kubernetes.Interface
	release func()

	mu      sync.Mutex
	waiting int
}

func startSlowLists(t *testing.T) *slowLists {
	t.Helper()
	s, released := &slowLists{}, make(chan struct{})
	s.release = sync.OnceFunc(func() { close(released) })
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.RawQuery, "clusterIP") {
			s.count(1)
			defer s.count(-1)
			select {
			case <-released:
			case <-r.Context().Done():
			}
		}
		w.Header().Set("Content-Type", "application/json")
		kind := map[string]string{"services": "ServiceList", "pods": "PodList", "nodes": "NodeList"}[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
		_, _ = fmt.Fprintf(w, `{"kind":%q,"apiVersion":"v1","items":[]}`, kind)
	}))
	client, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	s.client = client
	t.Cleanup(func() { s.release(); s.CloseClientConnections(); s.Close() })
	return s
}

func (s *slowLists) count(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting += n
	return s.waiting
}

// until waits until n lists wait.
func (s *slowLists) until(t *testing.T, n int) {
	t.Helper()
	daemontest.Eventually(t, time.Minute, func() error {
		if s.count(0) != n {
			return fmt.Errorf("%d lists wait for the API server, want %d", s.count(0), n)
		}
		return nil
	})
}

// TestLookups: addresses of one client that are looked up at a time, which costs the API server lists of all objects, have a bound,
// also for a client that does not wait for the answers. The next one waits for a while, and gets `busy`. It
// counts by user, also where users share an address, and by address for those without credentials of their own.
func TestLookups(t *testing.T) {
	t.Parallel()
	bearer := func(name string) string { return "Proxy-Authorization: Bearer " + name + "\r\n" }
	for name, c := range map[string]struct{ from, login, otherFrom, otherLogin string }{
		"by user":    {"127.0.0.1", bearer("alice"), "127.0.0.1", bearer("bob")},
		"by address": {"127.0.0.1", right(), "127.0.0.2", right()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, metrics := startSlowLists(t), NewMetrics(nil)
			w := newWorld(t, func(_ *world, cfg *Config) {
				// The wait is the default: the last client must not reach its end before the API server's answers make room.
				cfg.Metrics, cfg.Resolver = metrics, resolve.New(api.client, resolve.Options{})
				cfg.Authenticator.Tokens = authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
					return &authenticator.Response{User: &user.DefaultInfo{Name: token}}, true, nil
				})
			})
			w.setDial(gateway.Errorf(gateway.ReasonRefused, "", "all are refused"))
			asked := 0
			ask := func(from, login string) net.Conn {
				asked++
				nc, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", w.addr)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = nc.Close() })
				_ = nc.SetDeadline(time.Now().Add(time.Minute))
				_, _ = fmt.Fprintf(nc, "CONNECT 198.51.100.%d:443 HTTP/1.1\r\n%s\r\n", asked, login)
				return nc
			}
			status := func(nc net.Conn) string {
				t.Helper()
				line, err := bufio.NewReader(nc).ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				return strings.TrimSpace(line)
			}
			var first []net.Conn
			for range maxLookups {
				first = append(first, ask(c.from, c.login))
			}
			api.until(t, maxLookups)
			another := ask(c.from, c.login)
			of := ask(c.otherFrom, c.otherLogin)
			api.until(t, maxLookups+1)
			for _, nc := range first { // whose lookups go on
				_ = nc.Close()
			}
			const busy = "HTTP/1.1 503 Service Unavailable (busy)"
			if got := status(another); got != busy {
				t.Errorf("one more than %d: %s", maxLookups, got)
			}
			if got := status(ask(c.from, c.login)); got != busy {
				t.Errorf("after the client has left the first ones: %s", got)
			}
			if n := api.count(0); n != maxLookups+1 {
				t.Errorf("%d lists wait for the API server, want those of %d lookups and that of the other client", n, maxLookups)
			}
			if n := testutil.ToFloat64(metrics.rejected); n != 2 {
				t.Errorf("the metric counts %v connections above limits, want 2", n)
			}
			last := ask(c.from, c.login)
			api.release()
			for _, nc := range []net.Conn{of, last} {
				if got := status(nc); !strings.HasPrefix(got, "HTTP/1.1 502 ") {
					t.Errorf("when the API server answers: %s", got)
				}
			}
			busyRecords := 0
			for _, r := range w.ended(t, asked) {
				if r.Result == "busy" && strings.Contains(r.Error, fmt.Sprintf("looks up %d destinations", maxLookups)) {
					busyRecords++
				}
			}
			if busyRecords != 2 {
				t.Errorf("%d records are about the limit, want 2", busyRecords)
			}
			w.Server.lookups.mu.Lock()
			defer w.Server.lookups.mu.Unlock()
			if n := len(w.Server.lookups.of); n != 0 {
				t.Errorf("%d clients without lookups are remembered", n)
			}
		})
	}
}

// TestLookupsOfDials: other destinations that a dial asks for have the same places. Such a lookup keeps its place when the client
// has gone.
func TestLookupsOfDials(t *testing.T) {
	t.Parallel()
	var asking atomic.Int32
	results, release := make(chan error, 2*maxLookups), make(chan struct{})
	w := newWorld(t, func(w *world, cfg *Config) {
		cfg.lookupWait = time.Second
		w.dial = func(ctx context.Context, _ gateway.Destination) (gateway.Conn, error) {
			results <- gateway.Lookup(ctx, func(lookup context.Context) {
				asking.Add(1)
				defer asking.Add(-1)
				select {
				case <-lookup.Done():
				case <-release:
				}
			})
			return nil, gateway.Errorf(gateway.ReasonRefused, "", "all are refused")
		}
	})
	w.name("echo.default", netip.MustParseAddrPort("192.0.2.1:7"))
	ask := func() net.Conn {
		nc, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		if _, err := io.WriteString(nc, greetAndLogin()+socksRequest(1, "echo.default", 7)); err != nil {
			t.Fatal(err)
		}
		return nc
	}
	var clients []net.Conn
	for range maxLookups {
		clients = append(clients, ask())
	}
	daemontest.Eventually(t, time.Minute, func() error {
		if asking.Load() != maxLookups {
			return fmt.Errorf("%d dials look for others", asking.Load())
		}
		return nil
	})
	for _, nc := range clients {
		_ = nc.Close()
	}
	// Its own lookup finds no place either.
	if got := talk(t, w.addr, greetAndLogin()+socksRequest(1, "echo.default", 7)+sentAhead); got != loggedIn+reply(answers[gateway.ReasonBusy].reply) {
		t.Errorf("one more: %q", got)
	}
	if n := asking.Load(); n != maxLookups {
		t.Errorf("%d lookups, want those of the clients that have gone", n)
	}
	close(release)
	for range maxLookups {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// TestLookupsInDocs: the pages have the limit, and how long a client waits.
func TestLookupsInDocs(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]string{
		"socks5.md":  fmt.Sprintf("The proxy looks up %d destinations of one client at a time", maxLookups),
		"gateway.md": fmt.Sprintf("| destinations that are looked up at a time (%d) |", maxLookups),
	} {
		text, err := os.ReadFile("../../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), want) {
			t.Errorf("%s lacks %q", page, want)
		}
	}
}
