// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"bufio"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
)

// bound is for steps that take milliseconds on an idle machine.
const bound = 30 * time.Second

const clusterToken = "token-of-the-kubeconfig"

// apiServer is a stand-in for kube-apiserver with real TLS and HTTP/2. It answers only
// requests that carry the kubeconfig's token.
type apiServer struct {
	*httptest.Server
	seen     atomic.Pointer[http.Request]
	requests atomic.Int64
}

// startAPIServer starts one whose paths under /stream send until they are closed, whose
// path exec echoes an upgraded connection, and whose others tell what they got.
func startAPIServer(t *testing.T, more ...http.HandlerFunc) *apiServer {
	t.Helper()
	s := &apiServer{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s.requests.Add(1)
		s.seen.Store(req)
		switch {
		case req.Header.Get("Authorization") != "Bearer "+clusterToken:
			http.Error(w, "not authenticated", http.StatusUnauthorized)
		case len(more) > 0:
			more[0](w, req)
		case strings.HasPrefix(req.URL.Path, "/stream"):
			stream(w, req)
		case strings.HasSuffix(req.URL.Path, "/exec"):
			echoUpgrade(w, req)
		default:
			_, _ = fmt.Fprintf(w, "%s %s", req.Method, req.RequestURI)
		}
	}))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// stream sends lines until the client goes away.
func stream(w http.ResponseWriter, req *http.Request) {
	for i := 0; ; i++ {
		if _, err := fmt.Fprintf(w, "line %d\n", i); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-req.Context().Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// echoUpgrade switches protocols and returns what it receives, until its end.
func echoUpgrade(w http.ResponseWriter, req *http.Request) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer c.Close()
	_, _ = fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", req.Header.Get("Upgrade"))
	_ = rw.Flush()
	_, _ = io.Copy(c, rw)
}

// config is what a kubeconfig for the server says.
func (s *apiServer) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return &rest.Config{Host: s.URL, BearerToken: clusterToken, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// defaults is the filter of the command's defaults.
func defaults(t *testing.T) *Filter {
	t.Helper()
	return filter(t, DefaultAcceptHosts, DefaultAcceptPaths, DefaultRejectPaths, DefaultRejectMethods)
}

func filter(t *testing.T, hosts, paths, rejectPaths, rejectMethods string) *Filter {
	t.Helper()
	must := func(p Patterns, err error) Patterns {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	return &Filter{AcceptHosts: must(ParseAccept(hosts)), AcceptPaths: must(ParseAccept(paths)),
		RejectPaths: must(ParseReject(rejectPaths)), RejectMethods: must(ParseReject(rejectMethods))}
}

// serve runs a proxy and returns its address and what ends it.
func serve(t *testing.T, o Options, grace time.Duration) (address string, stop func() error) {
	t.Helper()
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(ctx, l, grace) }()
	stop = func() error { cancel(); err := <-ended; ended <- err; return err }
	t.Cleanup(func() { _ = stop() })
	return l.Addr().String(), stop
}

// answer is what a raw request got.
type answer struct {
	status int
	header http.Header
	body   string
}

// send writes a request as it is, so that nothing cleans its path or headers.
func send(t *testing.T, address, request string) answer {
	t.Helper()
	_, r := dial(t, address, request)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatalf("%.200q: %v", request, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%.200q: %v", request, err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// get is the text of a GET request with further header lines.
func get(path, host string, headers ...string) string {
	return request(http.MethodGet, path, host, headers...)
}

func request(method, path, host string, headers ...string) string {
	lines := append([]string{method + " " + path + " HTTP/1.1", "Host: " + host, "Connection: close"}, headers...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// upgrade is the text of a request to exec.
func upgrade(path string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n"
}

// begun reads the head of an answer whose body goes on, and returns the body.
func begun(t *testing.T, r *bufio.Reader) io.Reader {
	t.Helper()
	resp, err := http.ReadResponse(r, nil) //nolint:bodyclose // closing reads a stream to its end; dial closes the connection
	if err != nil {
		t.Fatal(err)
	}
	return resp.Body
}

// switched reads the answer to an upgrade.
func switched(t *testing.T, r *bufio.Reader) {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // it has none
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the upgrade got status %d", resp.StatusCode)
	}
}

func dial(t *testing.T, address, request string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, bound)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(bound))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}
