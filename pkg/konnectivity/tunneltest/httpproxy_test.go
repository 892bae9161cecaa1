// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/internal/logtest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// connectProxy is an HTTP proxy for CONNECT that alone knows where serverName is.
type connectProxy struct {
	addr string
	user string // user:password that it wants; empty wants none

	mu    sync.Mutex
	asked []string // what it was asked to connect to

	conns *testutil.Conns // of clients and to servers
}

// serverName resolves nowhere but at the proxy.
const serverName = "servers.invalid"

func newConnectProxy(t *testing.T, l net.Listener, user, server string) *connectProxy {
	t.Helper()
	p := &connectProxy{addr: l.Addr().String(), user: user}
	p.conns = testutil.ServeWith(t, l, func(conns *testutil.Conns, c net.Conn) { p.serve(conns, c, server) })
	return p
}

// requests are what the proxy was asked to connect to.
func (p *connectProxy) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.asked...)
}

func (p *connectProxy) serve(conns *testutil.Conns, c net.Conn, server string) {
	r := bufio.NewReader(c)
	req, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.asked = append(p.asked, req.Method+" "+req.RequestURI)
	p.mu.Unlock()
	want := ""
	if p.user != "" {
		want = "Basic " + base64.StdEncoding.EncodeToString([]byte(p.user))
	}
	host, _, _ := net.SplitHostPort(req.RequestURI)
	switch {
	case req.Header.Get("Proxy-Authorization") != want:
		_, _ = io.WriteString(c, "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 5\r\n\r\nlogin")
		return
	case host != serverName:
		_, _ = io.WriteString(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
		return
	}
	to, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	conns.Add(to)
	defer conns.Remove(to)
	_, _ = io.WriteString(c, "HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
	go func() { _, _ = io.Copy(to, r); _ = to.Close() }()
	_, _ = io.Copy(c, to)
}

// through has an agent use a proxy for everything that it may use one for.
func through(u *url.URL) func(string) (*url.URL, error) {
	return func(string) (*url.URL, error) { return u, nil }
}

// TestHTTPProxy: an agent that can neither resolve nor reach its server connects through an
// HTTP proxy with a password, with either protocol, with further links, and again when the
// proxy has cut it; its dials to destinations do not use the proxy.
func TestHTTPProxy(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			t.Parallel()
			r := NewRig(t, server.Config{Links: 2})
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			p := newConnectProxy(t, l, "me:p@ss", r.AgentTLS)
			_, port, _ := net.SplitHostPort(r.AgentTLS)
			address := net.JoinHostPort(serverName, port)
			links := 2
			if upstreamOnly {
				links = 1
			}
			r.StartAgent(agent.Config{Protocol: Only(upstreamOnly), SyncForever: true,
				Proxy: through(&url.URL{Scheme: "http", Host: p.addr, User: url.UserPassword("me", "p@ss")})}, address)
			linked := func() bool {
				return Metric(r.Metrics.Registry, fmt.Sprintf(`fairlead_tunnel_server_links{protocol=%q}`, map[bool]string{false: "fairlead", true: "upstream"}[upstreamOnly])) == float64(links)
			}
			Eventually(t, Patience, "all links are there", linked)
			echo := Target(t, Echo)
			for _, d := range []Dialer{GRPC(r.GRPC), Connect(r.Connect)} {
				echoes(t, MustDial(t, d, echo), 1, 64<<10)
			}
			p.conns.Cut()
			before := len(p.requests())
			Eventually(t, Patience, "the agent asks the proxy again", func() bool { return len(p.requests()) > before })
			Eventually(t, Patience, "all links are back", linked)
			echoes(t, MustDial(t, GRPC(r.GRPC), echo), 2, 1000)
			for _, asked := range p.requests() {
				if asked != "CONNECT "+address {
					t.Errorf("the proxy was asked %q, want only CONNECT %s", asked, address)
				}
			}
		})
	}
}

// TestHTTPSProxy: the proxy itself may speak TLS, with a certificate that the system trusts.
// The process reads the system's roots once; no other test of this package needs them.
func TestHTTPSProxy(t *testing.T) {
	r := NewRig(t, server.Config{})
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: loadPair(t, r.CA, "proxy", time.Now().Add(time.Hour)), MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	p := newConnectProxy(t, l, "", r.AgentTLS)
	proxy := through(&url.URL{Scheme: "https", Host: p.addr})
	t.Setenv("SSL_CERT_FILE", r.CA.File)
	t.Setenv("SSL_CERT_DIR", t.TempDir())
	_, port, _ := net.SplitHostPort(r.AgentTLS)
	r.StartAgent(agent.Config{Proxy: proxy}, net.JoinHostPort(serverName, port))
	echoes(t, MustDial(t, GRPC(r.GRPC), Target(t, Echo)), 1, 300<<10)
}

// TestHTTPProxyRefuses: what is wrong with a proxy is logged with what to do, without its
// password, and counted.
func TestHTTPProxyRefuses(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := newConnectProxy(t, l, "me:right", r.AgentTLS)
	garbage := Target(t, func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-x\r\n"); _ = c.Close() })
	early := Target(t, func(c net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nhello")
		_, _ = io.Copy(io.Discard, c)
	})
	closed := Target(t, func(net.Conn) {})
	for name, c := range map[string]struct {
		proxy, password, server, want string
	}{
		"wrong password":  {p.addr, "s3cret", serverName, "407 Proxy Authentication Required: set the user name and password in HTTPS_PROXY"},
		"other host":      {p.addr, "right", "other.invalid", "403 Forbidden: allow CONNECT"},
		"no proxy":        {garbage, "s3cret", serverName, "check that it is an HTTP proxy"},
		"closes":          {closed, "s3cret", serverName, "no valid answer to CONNECT"},
		"speaks too soon": {early, "s3cret", serverName, "sent 5 bytes behind its answer"},
		"is not there":    {"127.0.0.1:1", "s3cret", serverName, "cannot connect: dial tcp 127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			var log lines
			a := r.LaunchAgent(agent.Config{Proxy: through(&url.URL{Scheme: "http", Host: c.proxy, User: url.UserPassword("me", c.password)}),
				Logger: log.logger()}, net.JoinHostPort(c.server, "8091"))
			Eventually(t, Patience, "the failure is logged", func() bool {
				return log.has(`Cannot connect to a server address="` + c.server + `:8091" err="proxy http://` + c.proxy + ": ")
			})
			if !log.has(c.want) || log.has(c.password) && c.password != "right" {
				t.Errorf("logged\n%s\nwant %q and no password", log.text(), c.want)
			}
			if Metric(a.Metrics.Registry, `fairlead_tunnel_agent_connect_failures_total{reason="proxy"}`) == 0 {
				t.Error("the failure is not counted as the proxy's")
			}
		})
	}
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) logger() logr.Logger {
	return logtest.New(func(_ int, line string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, line)
	})
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

func (l *lines) has(text string) bool { return strings.Contains(l.text(), text) }
