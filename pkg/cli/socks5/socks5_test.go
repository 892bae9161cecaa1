// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/serving"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	gatewaysocks5 "github.com/fairlead-dev/fairlead/pkg/gateway/socks5"
)

// cluster resolves hello.default to a web server of this machine and dials with its network.
type cluster struct{ web netip.AddrPort }

func (c *cluster) Resolve(_ context.Context, host string, port uint16) (gateway.Destination, error) {
	if host != "hello.default" {
		return gateway.Destination{}, gateway.Errorf(gateway.ReasonNotFound, "", "no Service %q", host)
	}
	return gateway.Destination{Host: host, Port: port, Kind: gateway.KindService, Namespace: "default", Name: "hello", Addr: c.web}, nil
}

func (c *cluster) Dial(ctx context.Context, d gateway.Destination) (gateway.Conn, error) {
	var nd net.Dialer
	nc, err := nd.DialContext(ctx, "tcp", d.Addr.String())
	if err != nil {
		return nil, err
	}
	return nc.(*net.TCPConn), nil
}

// buffer can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newOptions(t *testing.T) (*Options, *buffer) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }))
	t.Cleanup(srv.Close)
	var out buffer
	o := NewOptions(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	c := &cluster{netip.MustParseAddrPort(srv.Listener.Addr().String())}
	o.resolver, o.dialer, o.Listen, o.InsecureAllowLocal = c, c, "127.0.0.1:0", true
	o.AuditLog = filepath.Join(t.TempDir(), "audit.json")
	return o, &out
}

func run(ctx context.Context, o *Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	return o.Run(ctx)
}

// TestServe: the URL is in a file that only its owner can read, it works, the audit log has
// the connection, the password is in no output and no log, and the end of the command removes
// the file.
// It observes SOCKS-04 of docs/requirements.md.
// It also observes OLD-99 of docs/requirements.md.
func TestServe(t *testing.T) {
	o, out := newOptions(t)
	o.URLFile = filepath.Join(t.TempDir(), "dir", "url")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- run(ctx, o) }()
	var text []byte
	daemontest.Eventually(t, time.Minute, func() (err error) {
		if text, err = os.ReadFile(o.URLFile); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	info, err := os.Stat(o.URLFile)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	u, err := url.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if u.Scheme != "socks5" {
		t.Errorf("kubectl does not accept the scheme %q in proxy-url", u.Scheme)
	}
	res, err := (&http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(u), DisableKeepAlives: true}}).Get("http://hello.default/")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	anyone := *u
	anyone.User = nil
	if res, err := (&http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&anyone)}}).Get("http://hello.default/"); err == nil {
		_ = res.Body.Close()
		t.Error("the proxy needs no password")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(o.URLFile); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
	log, err := os.ReadFile(o.AuditLog)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	if strings.Contains(out.String(), password) || bytes.Contains(log, []byte(password)) || password == "" {
		t.Errorf("the password %q is in %s or %s", password, out, log)
	}
	var records []gatewaysocks5.Record
	for _, line := range strings.Split(strings.TrimSpace(string(log)), "\n") {
		var r gatewaysocks5.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		records = append(records, r)
	}
	served := slices.IndexFunc(records, func(r gatewaysocks5.Record) bool { return r.Result == gatewaysocks5.ResultOK })
	if len(records) != 2 || served < 0 {
		t.Fatalf("%+v", records)
	}
	if r := records[served]; r.User != "fairlead" || r.Destination != "hello.default:80" || r.Kind != "Service" || r.Name != "hello" || r.BytesReceived == 0 || r.BytesSent == 0 {
		t.Errorf("%+v", r)
	}
	if r := records[1-served]; r.Result != string(gatewaysocks5.ReasonUnauthenticated) || r.Destination != "" {
		t.Errorf("%+v", r)
	}
}

// AsClient names the environment variable that makes this test binary a client, which gets the page of its value as all clients
// that use net/http do.
const AsClient = "SOCKS5_TEST_AS_CLIENT"

// GetPage is that client. It returns the exit code.
func GetPage(page string) int {
	res, err := (&http.Client{Timeout: time.Minute}).Get(page)
	if err == nil {
		defer res.Body.Close()
		_, err = io.Copy(os.Stdout, res.Body)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// forClients runs a test with the command of each client, which gets a page.
func forClients(t *testing.T, test func(t *testing.T, command func(page string) string)) {
	t.Run("net/http", func(t *testing.T) {
		test(t, func(page string) string { return fmt.Sprintf("%s='%s' '%s'", AsClient, page, os.Args[0]) })
	})
	t.Run("curl", func(t *testing.T) {
		curl := daemontest.Program(t, "curl")
		test(t, func(page string) string { return fmt.Sprintf("'%s' -sS --max-time 60 '%s'", curl, page) })
	})
}

// TestCommand: a program without proxy settings of its own reaches a Service by its name,
// even if the user's environment excludes hosts from proxies; the password is not in its
// arguments, and its exit code is ours.
// It observes SOCKS-05 of docs/requirements.md.
func TestCommand(t *testing.T) {
	t.Setenv("NO_PROXY", "*")
	t.Setenv("http_proxy", "http://192.0.2.1:1")
	forClients(t, func(t *testing.T, command func(string) string) {
		o, out := newOptions(t)
		o.Command = []string{"sh", "-c", command("http://hello.default:8080/") + " && exit 3"}
		err := run(t.Context(), o)
		if out := out.String(); !strings.HasSuffix(out, "\nhello") {
			t.Errorf("%q", out)
		}
		var code interface{ CommandExitCode() int }
		if err == nil || !errors.As(err, &code) || code.CommandExitCode() != 3 {
			t.Errorf("%v", err)
		}
	})
	o, out := newOptions(t)
	o.Command = []string{"no-such-program"}
	if err := run(t.Context(), o); err == nil {
		t.Error(out)
	}
}

// slowEnd dials connections that pass on the end of what the client has sent with a delay.
type slowEnd struct{ *cluster }

func (c slowEnd) Dial(ctx context.Context, d gateway.Destination) (gateway.Conn, error) {
	nc, err := c.cluster.Dial(ctx, d)
	if err != nil {
		return nil, err
	}
	return slowEndConn{nc}, nil
}

type slowEndConn struct{ gateway.Conn }

func (c slowEndConn) CloseWrite() error {
	time.Sleep(300 * time.Millisecond) // longer than a command takes to end
	return c.Conn.CloseWrite()
}

// TestEndOfCommandCutsNothing: a connection that the command has closed ends in an orderly
// way, although the command itself ends first.
func TestEndOfCommandCutsNothing(t *testing.T) {
	forClients(t, func(t *testing.T, command func(string) string) {
		o, out := newOptions(t)
		o.dialer = slowEnd{o.dialer.(*cluster)}
		o.Command = []string{"sh", "-c", "exec env " + command("http://hello.default:8080/")}
		if err := run(t.Context(), o); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		audit, err := os.ReadFile(o.AuditLog)
		if err != nil || !strings.Contains(string(audit), `"result":"ok"`) {
			t.Errorf("%v, %s", err, audit)
		}
	})
}

// TestExposureIsRefused: beyond loopback the proxy needs TLS and a way to authenticate, unless
// a flag whose name says so waives it; flags that contradict each other are errors.
func TestExposureIsRefused(t *testing.T) {
	tls := func(o *Options) { o.TLSCert, o.TLSKey = "c", "k" }
	for _, c := range []struct {
		listen string
		change func(*Options)
		ok     bool
	}{
		{"127.0.0.1:1080", func(*Options) {}, true},
		{"[::1]:1080", func(*Options) {}, true},
		{"localhost:0", func(*Options) {}, true},
		{"127.0.0.1:1080", tls, true},
		{":1080", func(*Options) {}, false},
		{"0.0.0.0:1080", func(*Options) {}, false},
		{"[::]:1080", func(*Options) {}, false},
		{"192.0.2.1:1080", func(*Options) {}, false},
		{"proxy.example:1080", func(*Options) {}, false},
		{":1080", tls, false},
		{":1080", func(o *Options) { o.PasswordFile = "f" }, false},
		{":1080", func(o *Options) { o.InsecureNoAuth = true }, false},
		{":1080", func(o *Options) { o.InsecureNoTLS = true }, false},
		{":1080", func(o *Options) { o.InsecureNoTLS, o.PasswordFile = true, "f" }, false},
		{":1080", func(o *Options) { o.InsecureNoTLS, o.PasswordFile, o.InsecureNoAuthorization = true, "f", true }, true},
		{":1080", func(o *Options) { tls(o); o.InsecureNoAuthorization = true }, false},
		{":1080", func(o *Options) { o.InsecureNoTLS, o.InsecureNoAuth = true, true }, true},
		{":1080", func(o *Options) { tls(o); o.ClientCA = "ca" }, false},
		{":1080", func(o *Options) { tls(o); o.TokenReview = true }, false},
		{":1080", func(o *Options) { tls(o); o.PasswordFile = "f" }, false},
		{":1080", func(o *Options) { tls(o); o.ClientCA, o.AccessReview = "ca", true }, true},
		{":1080", func(o *Options) { tls(o); o.TokenReview, o.AccessReview = true, true }, true},
		{":1080", func(o *Options) { tls(o); o.PasswordFile, o.Rules = "f", "rules" }, true},
		{"127.0.0.1:1080", func(o *Options) { o.ClientCA = "ca" }, false},
		{"127.0.0.1:1080", func(o *Options) { o.TLSCert = "c" }, false},
		{"127.0.0.1:1080", func(o *Options) { o.AccessReview = true }, false},
		{"127.0.0.1:1080", func(o *Options) { o.InsecureNoAuth, o.PasswordFile = true, "f" }, false},
		{"127.0.0.1:1080", func(o *Options) { o.TokenReview, o.Command = true, []string{"x"} }, false},
		{"127.0.0.1", func(*Options) {}, false},
		{"127.0.0.1:1080", func(o *Options) { o.Via = "socks5" }, false},
		{"127.0.0.1:1080", func(o *Options) { o.Via = "ssh=-oProxyCommand=x" }, false},
		{"127.0.0.1:1080", func(o *Options) { o.Via = "ssh=me@bastion" }, true},
		{"127.0.0.1:1080", func(o *Options) { o.Allow = []string{"10.0.0.0/33"} }, false},
	} {
		o, _ := newOptions(t)
		o.Listen = c.listen
		c.change(o)
		if err := o.Validate(); (err == nil) != c.ok {
			t.Errorf("%s %+v: %v, want ok %v", c.listen, o, err, c.ok)
		}
	}
}

// TestInstructionsAgree: what the instructions set, they unset, and nothing else.
// It observes SOCKS-12 of docs/requirements.md.
// It also observes OLD-99 of docs/requirements.md.
func TestInstructionsAgree(t *testing.T) {
	for _, withTLS := range []bool{false, true} {
		var b bytes.Buffer
		instructions(&b, "/run/url", withTLS)
		names := func(verb string) (all []string) {
			for _, m := range regexp.MustCompile(verb+` (\w+)`).FindAllStringSubmatch(b.String(), -1) {
				all = append(all, m[1])
			}
			return all
		}
		if set, unset := names("export"), names("unset"); len(set) == 0 || !slices.Equal(set, unset) {
			t.Errorf("set %q, unset %q", set, unset)
		}
	}
}

// TestOwnPortIsDenied: the proxy does not connect to itself, by none of its addresses.
func TestOwnPortIsDenied(t *testing.T) {
	o, _ := newOptions(t)
	o.Allow = []string{"0.0.0.0/0", "::/0"}
	a, err := o.authorizer(nil, net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:1080")))
	if err != nil {
		t.Fatal(err)
	}
	for addr, ok := range map[string]bool{"127.0.0.1:1080": false, "[::ffff:127.0.0.1]:1080": false, "127.0.0.1:1081": true} {
		ap := netip.MustParseAddrPort(addr)
		err := a.Authorize(t.Context(), nil, gateway.Destination{Kind: gateway.KindExternal, Host: ap.Addr().String(), Port: ap.Port(), Addr: ap})
		if (err == nil) != ok {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if all := ownAddresses(&net.TCPAddr{IP: net.IPv6unspecified, Port: 1080}); !slices.Contains(all, "127.0.0.1:1080") {
		t.Errorf("%q", all)
	}
}

// TestMetrics: the listener for metrics has the connections of the proxy.
func TestMetrics(t *testing.T) {
	var out bytes.Buffer
	registry := prometheus.NewRegistry()
	gatewaysocks5.NewMetrics(registry)
	stop, err := serving.Metrics(t.Context(), "127.0.0.1:0", registry, &out)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	address := regexp.MustCompile(`http://\S+`).FindString(out.String())
	res, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var b bytes.Buffer
	_, _ = b.ReadFrom(res.Body)
	if !strings.Contains(b.String(), "fairlead_socks5_open_connections 0") {
		t.Error(b.String())
	}
}

// TestShutdownDelay: a client that comes after SIGTERM, because a node has not learned of the end yet, is served.
func TestShutdownDelay(t *testing.T) {
	t.Parallel()
	o, out := newOptions(t)
	o.URLFile, o.ShutdownDelay = filepath.Join(t.TempDir(), "url"), 10*time.Second
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, o) }()
	var text []byte
	daemontest.Eventually(t, time.Minute, func() (err error) {
		text, err = os.ReadFile(o.URLFile)
		return err
	})
	cancel()
	daemontest.Eventually(t, time.Minute, func() error {
		if !strings.Contains(out.String(), "Accepting connections for another 10s") {
			return errors.New(out.String())
		}
		return nil
	})
	u, err := url.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(u), DisableKeepAlives: true}, Timeout: time.Minute}
	response, err := client.Get("http://hello.default/")
	if err != nil {
		t.Fatalf("after SIGTERM: %v\n%s", err, out)
	}
	_ = response.Body.Close()
	if err := <-done; err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
