// SPDX-License-Identifier: Apache-2.0

package nodegate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// world is a gate in front of a backend that responds with the path of the
// request.
type world struct {
	config Config
	cfg    pki.Config
	ca     pki.KeyPair
}

func newWorld(t *testing.T) world {
	t.Helper()
	b, err := bundle.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	w := world{cfg: pki.FromBundle(b)}
	if w.ca, err = pki.NewCA(w.cfg, "test", time.Now()); err != nil {
		t.Fatal(err)
	}
	backend := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.RawQuery, "fail") {
			rw.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(rw, r.URL.Path+"?"+r.URL.RawQuery)
	}))
	t.Cleanup(backend.Close)
	address := net.JoinHostPort("127.0.0.1", daemontest.Ports(t, 1)[0])
	server := w.issue(t, w.ca, pki.Request{CommonName: "node", IPs: []net.IP{net.ParseIP("127.0.0.1")}, Usages: pki.ServerAuth})
	dir := t.TempDir()
	w.config = Config{
		Listen: address, Backend: backend.Listener.Addr().String(), Secret: "s3cret", ClientName: "kube-apiserver-kubelet-client",
		CertFile: filepath.Join(dir, "crt"), KeyFile: filepath.Join(dir, "key"), ClientCAFile: filepath.Join(dir, "ca"),
	}
	key, err := server.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	for file, data := range map[string][]byte{w.config.CertFile: server.CertPEM(), w.config.KeyFile: key, w.config.ClientCAFile: w.ca.CertPEM()} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Run(ctx, w.config) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("gate: %v", err)
		}
	})
	return w
}

func (w world) issue(t *testing.T, ca pki.KeyPair, r pki.Request) pki.KeyPair {
	t.Helper()
	pair, err := ca.Issue(w.cfg, r, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// get requests a path from the gate, with or without a client certificate.
func (w world) get(t *testing.T, path string, client *pki.KeyPair) (string, error) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(w.ca.Cert)
	conf := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if client != nil {
		conf.Certificates = []tls.Certificate{{Certificate: [][]byte{client.Cert.Raw}, PrivateKey: client.Key}}
	}
	c := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}}
	var err error
	for range 50 {
		var resp *http.Response
		req, rerr := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+w.config.Listen+path, nil)
		if rerr != nil {
			t.Fatal(rerr)
		}
		if resp, err = c.Do(req); err == nil {
			body, rerr := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			return string(body), rerr
		}
		if _, derr := net.DialTimeout("tcp", w.config.Listen, time.Second); derr == nil {
			return "", err // it listens, so it refused
		}
		time.Sleep(20 * time.Millisecond)
	}
	return "", err
}

func TestOnlyTheAPIServerIsLetIn(t *testing.T) {
	w := newWorld(t)
	otherCA, err := pki.NewCA(w.cfg, "other", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	good := w.issue(t, w.ca, pki.Request{CommonName: "kube-apiserver-kubelet-client", Usages: pki.ClientAuth})
	if body, err := w.get(t, "/healthz", &good); err != nil || body != "/healthz?" {
		t.Fatalf("the API server got %q, %v", body, err)
	}
	otherName := w.issue(t, w.ca, pki.Request{CommonName: "system:konnectivity-server", Usages: pki.ClientAuth})
	forged := w.issue(t, otherCA, pki.Request{CommonName: "kube-apiserver-kubelet-client", Usages: pki.ClientAuth})
	for name, client := range map[string]*pki.KeyPair{"no client certificate": nil, "another client of the cluster": &otherName, "the right name of another CA": &forged} {
		if body, err := w.get(t, "/exec/default/pod/c", client); err == nil {
			t.Errorf("%s got in: %q", name, body)
		}
	}
}

func TestNamespaceBecomesTheSecret(t *testing.T) {
	w := newWorld(t)
	client := w.issue(t, w.ca, pki.Request{CommonName: "kube-apiserver-kubelet-client", Usages: pki.ClientAuth})
	for path, want := range map[string]string{
		"/exec/default/web/c?command=ls":    "/exec/s3cret/web/c?command=ls",
		"/attach/default/web/c":             "/attach/s3cret/web/c?",
		"/portForward/shop/web":             "/portForward/s3cret/web?",
		"/containerLogs/kube-system/dns/c":  "/containerLogs/s3cret/dns/c?",
		"/exec/s3cret/web/c":                "/exec/s3cret/web/c?",
		"/metrics/resource":                 "/metrics/resource?",
		"/healthz":                          "/healthz?",
		"/execute/default/web/c":            "/execute/default/web/c?",
		"/portForward/default/web/uid-1234": "/portForward/s3cret/web/uid-1234?",
	} {
		if got, err := w.get(t, path, &client); err != nil || got != want {
			t.Errorf("%s reached kwok as %q, %v; want %q", path, got, err, want)
		}
	}
}

// kwok quotes the namespace in its errors. They must not reveal the secret to
// clients.
func TestErrorsDoNotTellTheSecret(t *testing.T) {
	w := newWorld(t)
	client := w.issue(t, w.ca, pki.Request{CommonName: "kube-apiserver-kubelet-client", Usages: pki.ClientAuth})
	got, err := w.get(t, "/attach/default/web/c?fail", &client)
	if err != nil || got != "/attach/NAMESPACE/web/c?fail" {
		t.Errorf("error = %q, %v; want it without the secret", got, err)
	}
}

// TestLongCommand checks that an exec with a script as its command passes, as
// with a kubelet.
func TestLongCommand(t *testing.T) {
	w := newWorld(t)
	client := w.issue(t, w.ca, pki.Request{CommonName: w.config.ClientName, Usages: pki.ClientAuth})
	query := "command=" + strings.Repeat("x", 100<<10)
	if body, err := w.get(t, "/exec/default/pod/c?"+query, &client); err != nil || !strings.HasSuffix(body, query) {
		t.Errorf("a command of 100 KiB: %d bytes came back, %v", len(body), err)
	}
}
