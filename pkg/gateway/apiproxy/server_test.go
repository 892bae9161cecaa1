// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/klog/v2/textlogger"

	"github.com/fairlead-dev/fairlead/pkg/internal/httplimits"
)

// With a token, only clients that send it are served, and the API server gets the
// kubeconfig's instead. Without one, a client's own token reaches the API server, as with
// kubectl proxy.
// It observes HTTP-02 of docs/requirements.md.
func TestToken(t *testing.T) {
	api := startAPIServer(t)
	address, _ := serve(t, Options{Config: api.config(), Filter: defaults(t), Token: "secret"}, 0)
	for header, want := range map[string]int{
		"Authorization: Bearer secret": 200, "Authorization: bearer secret": 200, "Authorization: Bearer secret2": 401,
		"Authorization: Bearer ": 401, "Authorization: secret": 401, "Authorization: Basic secret": 401, "X-Nothing: x": 401,
	} {
		got := send(t, address, get("/api", "localhost", header))
		if got.status != want || want == 401 && got.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s: status %d, want %d: %s", header, got.status, want, got.body)
		}
	}
	if auth := api.seen.Load().Header.Get("Authorization"); auth != "Bearer "+clusterToken {
		t.Errorf("the API server got %q", auth)
	}
	address, _ = serve(t, Options{Config: api.config(), Filter: defaults(t)}, 0)
	if got := send(t, address, get("/api", "localhost", "Authorization: Bearer own")); got.status != http.StatusUnauthorized {
		t.Errorf("the client's own token: status %d: %s", got.status, got.body)
	}
	if auth := api.seen.Load().Header.Get("Authorization"); auth != "Bearer own" {
		t.Errorf("the API server got %q", auth)
	}
}

// lockedBuffer is a log that handlers write into.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Split(strings.TrimSpace(b.String()), "\n")
}

// Each request makes one line in the log and is counted once: one that is forwarded, one
// that is refused, an upgrade. No query, token or body is in the log.
func TestLogAndMetrics(t *testing.T) {
	api, registry, log := startAPIServer(t), prometheus.NewRegistry(), &lockedBuffer{}
	address, stop := serve(t, Options{Config: api.config(), Filter: filter(t, DefaultAcceptHosts, ".*", "hidden", ""), Registry: registry,
		Log: textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log)))}, time.Second)
	send(t, address, get("/api/v1?token=canary1", "localhost", "Authorization: Bearer "+clusterToken, "Cookie: canary2", "User-Agent: tester"))
	send(t, address, get("/hidden?x=canary3", "localhost"))
	send(t, address, request("PROPFIND", "/x", "localhost", "Content-Length: 7")+"canary4")
	c, r := dial(t, address, upgrade("/pods/p/exec?command=canary5"))
	switched(t, r)
	_, _ = io.WriteString(c, "four")
	_, _ = io.ReadFull(r, make([]byte, 4))
	if got := testutil.ToFloat64(gauge(t, registry, "fairlead_proxy_requests_in_flight", "upgrade")); got != 1 {
		t.Errorf("%v upgrades are open, want 1", got)
	}
	_ = c.Close()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	want := `
# HELP fairlead_proxy_refused_total Requests that the proxy answered itself, by reason.
# TYPE fairlead_proxy_refused_total counter
fairlead_proxy_refused_total{reason="path"} 1
# HELP fairlead_proxy_requests_in_flight Requests that are being answered, by kind: request, stream (watch, followed log) or upgrade (exec, port-forward).
# TYPE fairlead_proxy_requests_in_flight gauge
fairlead_proxy_requests_in_flight{kind="request"} 0
fairlead_proxy_requests_in_flight{kind="upgrade"} 0
# HELP fairlead_proxy_requests_total Requests that have ended, by method and status; 499: the client went away, 0: the answer was cut short.
# TYPE fairlead_proxy_requests_total counter
fairlead_proxy_requests_total{code="101",method="POST"} 1
fairlead_proxy_requests_total{code="200",method="GET"} 1
fairlead_proxy_requests_total{code="200",method="other"} 1
fairlead_proxy_requests_total{code="403",method="GET"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "fairlead_proxy_refused_total", "fairlead_proxy_requests_in_flight", "fairlead_proxy_requests_total"); err != nil {
		t.Error(err)
	}
	lines := log.lines()
	if len(lines) != 4 || strings.Contains(strings.Join(lines, ""), "canary") || strings.Contains(strings.Join(lines, ""), clusterToken) {
		t.Errorf("the log is\n%s", strings.Join(lines, "\n"))
	}
	for i, parts := range [][]string{
		{`method="GET"`, `path="/api/v1"`, `status=200`, `userAgent="tester"`}, {`path="/hidden"`, `status=403`, `reason="path"`},
		{`method="PROPFIND"`}, {`kind="upgrade"`, `status=101`, `bytesSent=4`},
	} {
		for _, part := range parts {
			if i >= len(lines) || !strings.Contains(lines[i], part) {
				t.Errorf("line %d has no %s", i, part)
			}
		}
	}
}

func gauge(t *testing.T, registry *prometheus.Registry, name, kind string) prometheus.Collector {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := prometheus.NewGauge(prometheus.GaugeOpts{Name: "found"})
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == kind {
				out.Set(m.GetGauge().GetValue())
			}
		}
	}
	return out
}

// Connections that send no complete headers end.
func TestLimits(t *testing.T) {
	t.Parallel()
	api := startAPIServer(t)
	address, _ := serve(t, Options{Config: api.config(), Filter: defaults(t)}, 0)
	c, _ := dial(t, address, "GET /api HTTP/1.1\r\nHost: localhost\r\n")
	_ = c.SetDeadline(time.Now().Add(httplimits.Long.ReadHeader + bound))
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("headers without an end: %v", err)
	}
}

// A Unix socket is for its owner alone, goes when the server ends, and takes the place of
// a stale one, but not of a file or of a socket in use.
// It observes HTTP-07 of docs/requirements.md.
func TestListenUnix(t *testing.T) {
	dir, err := os.MkdirTemp("", "ap") //nolint:usetesting // TempDir's path is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	if _, err := ListenUnix(t.Context(), path); err == nil || !strings.Contains(err.Error(), "another program listens there") {
		t.Errorf("a socket in use: %v", err)
	}
	_ = stale.Close()
	l, err := ListenUnix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, %v", info.Mode(), err)
	}
	_ = l.Close()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket stays: %v", err)
	}
	if err := os.WriteFile(path, []byte("a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenUnix(t.Context(), path); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file: %v", err)
	}
	if data, err := os.ReadFile(path); string(data) != "a file" {
		t.Errorf("the file is %q, %v", data, err)
	}
}

// A port that another program has is an error that says what to do.
func TestListenTaken(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Listen(t.Context(), "127.0.0.1", l.Addr().(*net.TCPAddr).Port); err == nil || !strings.Contains(err.Error(), "choose another with --port") {
		t.Errorf("got %v", err)
	}
}

// TestLargeHeaders: what the API server takes of headers passes, for requests and upgrades; what
// is larger is refused before the API server gets it.
func TestLargeHeaders(t *testing.T) {
	api := startAPIServer(t)
	address, _ := serve(t, Options{Config: api.config(), Filter: filter(t, DefaultAcceptHosts, ".*", "", "")}, 0)
	large := "Impersonate-Extra-Scopes: " + strings.Repeat("x", 500<<10)
	if got := send(t, address, get("/api", "localhost", "Impersonate-User: jane", large, large)); got.status != http.StatusOK {
		t.Errorf("status %d: %.200s", got.status, got.body)
	}
	if values := api.seen.Load().Header.Values("Impersonate-Extra-Scopes"); len(values) != 2 || len(values[0]) != 500<<10 {
		t.Errorf("%d values arrived", len(values))
	}
	c, r := dial(t, address, "POST /pods/p/exec HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n"+large+"\r\n\r\n")
	switched(t, r)
	_ = c.Close()
	before := api.requests.Load()
	if got := send(t, address, get("/api", "localhost", large, large, large)); got.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d: %.200s", got.status, got.body)
	}
	if n := api.requests.Load() - before; n != 0 {
		t.Errorf("the API server got %d requests", n)
	}
}

// TestHeaderLimits: other machines send shorter headers, because many of them may before they are known.
func TestHeaderLimits(t *testing.T) {
	for address, want := range map[net.Addr]int{
		&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}: maxHeaderBytes, &net.TCPAddr{IP: net.IPv6loopback}: maxHeaderBytes, &net.UnixAddr{Name: "x"}: maxHeaderBytes,
		&net.TCPAddr{IP: net.IPv4zero}: maxRemoteHeaderBytes, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}: maxRemoteHeaderBytes,
	} {
		if got := serverLimits(address).HeaderBytes; got != want {
			t.Errorf("%s: %d bytes, want %d", address, got, want)
		}
	}
	page, err := os.ReadFile("../../../docs/proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%d MiB, the API server's own limit. Beyond loopback, they have %d KiB", maxHeaderBytes>>20, maxRemoteHeaderBytes>>10); !strings.Contains(string(page), want) {
		t.Errorf("docs/proxy.md lacks %q", want)
	}
}
