// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// The API server gets the path, the query and the body as the client sent them, and the
// kubeconfig's credentials and name instead of the client's.
// It observes HTTP-02 of docs/requirements.md.
func TestForwards(t *testing.T) {
	api := startAPIServer(t)
	address, _ := serve(t, Options{Config: api.config(), Filter: defaults(t)}, 0)
	for _, path := range []string{
		"/api/", "/api", "/a%2Fb/c", "/a%20b?labelSelector=a%3Db&x=1;y=2", "/api/v1/namespaces/n/services/s/proxy//double//slash",
		"/?watch=0", "/x?fieldSelector=metadata.name%3Dx&empty=",
	} {
		if got := send(t, address, get(path, "localhost")); got.status != http.StatusOK || got.body != "GET "+path {
			t.Errorf("%s: status %d, the API server saw %q", path, got.status, got.body)
		}
	}
	seen := api.seen.Load()
	if seen.Host != strings.TrimPrefix(api.URL, "https://") || seen.ProtoMajor != 2 || seen.Header.Get("X-Forwarded-For") != "127.0.0.1" {
		t.Errorf("the API server saw host %q, %s, X-Forwarded-For %q", seen.Host, seen.Proto, seen.Header.Get("X-Forwarded-For"))
	}
}

// A prefix is removed from the path unless it begins with /api, as kubectl proxy does it,
// and the server's own path is put before it only on demand.
// It observes HTTP-07 of docs/requirements.md.
func TestPrefixes(t *testing.T) {
	api := startAPIServer(t)
	for _, tt := range []struct {
		prefix, serverPath string
		appendPath         bool
		path, want         string
		status             int
	}{
		{"/", "", false, "/api/v1", "/api/v1", 200},
		{"/custom", "", false, "/custom/api/v1", "/api/v1", 200},
		{"custom/", "", false, "/custom/a%2Fb", "/a%2Fb", 200},
		{"/custom/", "", false, "/%63ustom/a%2Fb", "/a/b", 200}, // the encoded path is made again
		{"/custom/", "", false, "/custom/", "/", 200},
		{"/custom/", "", false, "/custom", "", 301},
		{"/custom/", "", false, "/api/v1", "", 404},
		{"/api/", "", false, "/api/v1", "/api/v1", 200},
		{"/api/", "", false, "/version", "", 404},
		{"/", "/clusters/c1", false, "/api/v1", "/api/v1", 200},
		{"/", "/clusters/c1", true, "/api/v1", "/clusters/c1/api/v1", 200},
		{"/", "/clusters/c1/", true, "/a%2Fb", "/clusters/c1/a%2Fb", 200},
	} {
		config := api.config()
		config.Host += tt.serverPath
		address, _ := serve(t, Options{Config: config, Filter: defaults(t), APIPrefix: tt.prefix, AppendServerPath: tt.appendPath}, 0)
		got := send(t, address, get(tt.path, "localhost"))
		if got.status != tt.status || tt.status == 200 && got.body != "GET "+tt.want {
			t.Errorf("%+v: status %d, the API server saw %q", tt, got.status, got.body)
		}
	}
}

// Static files have their prefix, and the check of the host holds for them too. A prefix
// that the API has as well is refused.
// It observes HTTP-07 of docs/requirements.md.
func TestStatic(t *testing.T) {
	api, dir := startAPIServer(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "page.txt"), []byte("a page"), 0o600); err != nil {
		t.Fatal(err)
	}
	address, _ := serve(t, Options{Config: api.config(), Filter: defaults(t), StaticDir: dir, StaticPrefix: "/files"}, 0)
	for _, tt := range []struct {
		request, body string
		status        int
	}{
		{get("/files/page.txt", "localhost"), "a page", 200},
		{get("/files/../etc/passwd", "localhost"), "", 404},
		{get("/files/%2e%2e/%2e%2e/etc/passwd", "localhost"), "", 404},
		{get("/files/page.txt", "attacker.example.com"), "", 403},
		{get("/api", "localhost"), "GET /api", 200},
	} {
		if got := send(t, address, tt.request); got.status != tt.status || tt.body != "" && got.body != tt.body {
			t.Errorf("%q: status %d, %q", tt.request, got.status, got.body)
		}
	}
	if _, err := New(Options{Config: api.config(), StaticDir: dir, StaticPrefix: "/", APIPrefix: "/"}); err == nil {
		t.Error("static files and the API may have one prefix")
	}
}

// connectProxy is a real HTTP proxy that knows CONNECT and nothing else.
type connectProxy struct {
	net.Listener
	connects atomic.Int64
	auth     atomic.Value
}

func startConnectProxy(t *testing.T) *connectProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &connectProxy{Listener: l}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

func (p *connectProxy) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	req, err := http.ReadRequest(r)
	if err != nil || req.Method != http.MethodConnect {
		return
	}
	p.connects.Add(1)
	p.auth.Store(req.Header.Get("Proxy-Authorization"))
	to, err := net.Dial("tcp", req.Host)
	if err != nil {
		return
	}
	defer to.Close()
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { _, _ = io.Copy(to, r) }()
	_, _ = io.Copy(c, to)
}

// Requests and upgrades take the kubeconfig's proxy-url, with its user and password. An
// upgraded connection carries bytes both ways, also those that the client sends before the
// answer, and its orderly end.
// It observes SOCKS-02 of docs/requirements.md.
func TestProxyURL(t *testing.T) {
	api, through := startAPIServer(t), startConnectProxy(t)
	config := api.config()
	config.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: through.Addr().String(), User: url.UserPassword("u", "p")})
	address, _ := serve(t, Options{Config: config}, 0)
	if got := send(t, address, get("/api", "localhost")); got.status != http.StatusOK {
		t.Fatalf("status %d: %s", got.status, got.body)
	}
	if n := through.connects.Load(); n != 1 {
		t.Fatalf("a request opened %d connections through the proxy, want 1", n)
	}
	c, r := dial(t, address, upgrade("/api/v1/namespaces/n/pods/p/exec")+"early ")
	switched(t, r)
	if n := through.connects.Load(); n != 2 {
		t.Errorf("the upgrade opened %d connections through the proxy, want 1", n-1)
	}
	if auth := through.auth.Load(); auth != "Basic dTpw" {
		t.Errorf("the proxy got %q", auth)
	}
	if _, err := io.WriteString(c, "and late"); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); string(got) != "early and late" {
		t.Errorf("the connection returned %q, %v", got, err)
	}
	if seen := api.seen.Load(); seen.Header.Get("Authorization") != "Bearer "+clusterToken || seen.ProtoMajor != 1 {
		t.Errorf("the upgrade was %s with %q", seen.Proto, seen.Header.Get("Authorization"))
	}
}

// An upgrade that the API server refuses gets its answer.
func TestUpgradeRefused(t *testing.T) {
	api := startAPIServer(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no exec today", http.StatusForbidden) })
	address, _ := serve(t, Options{Config: api.config()}, 0)
	if got := send(t, address, upgrade("/api/v1/namespaces/n/pods/p/exec")); got.status != http.StatusForbidden || got.body != "no exec today\n" {
		t.Errorf("status %d: %q", got.status, got.body)
	}
}

// Where the API server is gone, open streams end, and requests and upgrades get a Status
// object with code 502 that says what is wrong.
func TestAPIServerGone(t *testing.T) {
	api := startAPIServer(t)
	address, _ := serve(t, Options{Config: api.config(), Explain: func(err error) string { return "it is away: " + err.Error() }}, 0)
	_, r := dial(t, address, get("/stream", "localhost"))
	answer := begun(t, r)
	if line, err := bufio.NewReader(answer).ReadString('\n'); err != nil || line != "line 0\n" {
		t.Fatalf("the stream sent %q, %v", line, err)
	}
	api.CloseClientConnections()
	api.Listener.Close()
	if _, err := io.Copy(io.Discard, answer); err == nil {
		t.Error("a stream that was cut ended as if it were complete")
	}
	for name, text := range map[string]string{"request": get("/api", "localhost"), "upgrade": upgrade("/x/exec")} {
		got := send(t, address, text)
		var status metav1.Status
		if err := json.Unmarshal([]byte(got.body), &status); err != nil || got.status != http.StatusBadGateway || status.Code != 502 || !strings.Contains(status.Message, "it is away") {
			t.Errorf("%s: status %d: %s", name, got.status, got.body)
		}
	}
}

// A client that reads nothing holds back neither others nor the API server's connection.
func TestStalledClient(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	api := startAPIServer(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/big" {
			for req.Context().Err() == nil {
				if _, err := io.WriteString(w, big); err != nil {
					return
				}
			}
		}
		_, _ = io.WriteString(w, "small")
	})
	address, _ := serve(t, Options{Config: api.config(), Filter: defaults(t)}, 0)
	for range 8 {
		_, r := dial(t, address, get("/big", "localhost"))
		begun(t, r) // and no byte of the body
	}
	for range 20 {
		if got := send(t, address, get("/small", "localhost")); got.body != "small" {
			t.Fatalf("beside stalled clients: status %d, %q", got.status, got.body)
		}
	}
	if seen := api.seen.Load(); seen.ProtoMajor != 2 {
		t.Errorf("the API server is spoken to with %s: the streams do not share a connection", seen.Proto)
	}
}

// At the end of ctx, no new connection is served, short requests end as they should, and
// streams and sessions go on for the grace period and no longer.
// It observes HTTP-08 of docs/requirements.md.
func TestDrain(t *testing.T) {
	release := make(chan struct{})
	api := startAPIServer(t, func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/stream":
			stream(w, req)
		case "/exec":
			echoUpgrade(w, req)
		default:
			<-release
			_, _ = fmt.Fprint(w, "done")
		}
	})
	h, err := New(Options{Config: api.config()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	const grace = 2 * time.Second
	go func() { ended <- h.Serve(ctx, l, grace) }()
	address := l.Addr().String()
	_, slow := dial(t, address, get("/slow", "localhost"))
	_, streaming := dial(t, address, get("/stream", "localhost"))
	session, sessionReader := dial(t, address, upgrade("/exec"))
	answer := begun(t, streaming)
	switched(t, sessionReader)
	testutil.Eventually(t, bound, func() error {
		if n := h.open.Load(); n < 3 {
			return fmt.Errorf("%d of 3 requests have arrived", n)
		}
		return nil
	})
	cancel()
	testutil.Eventually(t, bound, func() error {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			return errors.New("it still accepts connections")
		}
		return nil
	})
	close(release)
	if body, err := io.ReadAll(begun(t, slow)); err != nil || string(body) != "done" {
		t.Errorf("the request that was open: %q, %v", body, err)
	}
	if _, err := io.WriteString(session, "x"); err != nil {
		t.Error(err)
	}
	if b, err := sessionReader.ReadByte(); b != 'x' {
		t.Errorf("the session does not go on: %q, %v", b, err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if _, err := io.Copy(io.Discard, answer); err == nil {
		t.Error("the stream that was cut ended as if it were complete")
	}
	if _, err := sessionReader.ReadByte(); err == nil {
		t.Error("the session outlived the server")
	}
}
