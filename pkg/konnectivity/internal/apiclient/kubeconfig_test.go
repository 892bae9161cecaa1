// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// write creates a kubeconfig with these cluster and user fields in dir.
func write(t *testing.T, dir, cluster, user string) string {
	t.Helper()
	path := filepath.Join(dir, "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n" +
		"clusters: [{name: k, cluster: {" + cluster + "}}]\nusers: [{name: u, user: {" + user + "}}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestKubeconfigRefused checks that a kubeconfig that is broken, or needs something that
// does not exist, is refused with a line that names the field.
func TestKubeconfigRefused(t *testing.T) {
	const server = "server: https://x"
	for name, c := range map[string]struct{ cluster, user, want string }{
		"auth provider":    {server, "auth-provider: {name: gcp}", "auth-provider"},
		"exec version":     {server, "exec: {command: x, apiVersion: client.authentication.k8s.io/v1alpha1}", "exec.apiVersion"},
		"exec command":     {server, "exec: {apiVersion: client.authentication.k8s.io/v1}", "no command"},
		"interactive":      {server, "exec: {command: x, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Always}", "interactiveMode"},
		"proxy":            {server + ", proxy-url: '::'", "token: t", "proxy-url"},
		"no server":        {"", "token: t", "no cluster"},
		"CA":               {server + ", certificate-authority-data: " + base64.StdEncoding.EncodeToString([]byte("x")), "token: t", "certificate-authority"},
		"CA not there":     {server + ", certificate-authority: missing.crt", "token: t", "missing.crt"},
		"certificate":      {server, "client-certificate-data: eA==, client-key-data: eA==", "client certificate"},
		"not base64":       {server, "client-certificate-data: '*'", "client certificate"},
		"key is not there": {server, "client-certificate-data: eA==, client-key: missing.key", "missing.key"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, t.TempDir(), c.cluster, c.user)
			_, err := Load(t.Context(), path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want an error that names the file and %q", err, c.want)
			}
		})
	}
	path := filepath.Join(t.TempDir(), "k")
	for name, text := range map[string]string{"no context": "current-context: c\n", "not yaml": "\t{", "empty": ""} {
		_ = os.WriteFile(path, []byte(text), 0o600)
		if _, err := Load(t.Context(), path); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// TestProxyURLWithPassword: a proxy-url that is refused is not repeated, because the error goes into the log.
func TestProxyURLWithPassword(t *testing.T) {
	t.Parallel()
	for name, proxy := range map[string]string{
		"no URL":         "http://user:s3cret@proxy:80%zz",
		"control":        "http://user:s3cret@proxy\x7f:80",
		"no host":        "http://user:s3cret@",
		"no scheme":      "user:s3cret@proxy:80",
		"unknown scheme": "socks5h://user:s3cret@proxy:80",
		"scheme of two":  "s3cret://proxy",
	} {
		_, err := parseProxyURL(proxy)
		if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "proxy-url") || !strings.Contains(err.Error(), "socks5://HOST:PORT") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, proxy := range []string{"http://proxy:3128", "https://user:s3cret@proxy", "socks5://[::1]:1080"} {
		if u, err := parseProxyURL(proxy); err != nil || u.String() != proxy {
			t.Errorf("%s: %v, %v", proxy, u, err)
		}
	}
}

// lister starts an API server that passes its requests to f and returns an empty list of
// Leases.
func lister(t *testing.T, f func(*http.Request) int) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(f(r))
		_, _ = w.Write([]byte(`{"items":[]}`))
	}))
	t.Cleanup(srv.Close)
	return srv
}

func list(t *testing.T, path string) error {
	t.Helper()
	cfg, err := Load(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	_, _, err = (&Leases{Client: NewClient(cfg), Namespace: "n"}).List(t.Context())
	return err
}

func TestImpersonation(t *testing.T) {
	var got http.Header
	srv := lister(t, func(r *http.Request) int { got = r.Header; return 200 })
	path := write(t, t.TempDir(), "server: "+srv.URL, "username: a, password: b, as: x, as-uid: '7', as-groups: [g, h], as-user-extra: {scopes/a: [v]}")
	if err := list(t, path); err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]string{"Authorization": "Basic YTpi", "Impersonate-User": "x", "Impersonate-Uid": "7",
		"Impersonate-Group": "g,h", "Impersonate-Extra-Scopes%2fa": "v"} {
		if v := strings.Join(got[http.CanonicalHeaderKey(k)], ","); v != want {
			t.Errorf("%s is %q, want %q; all: %v", k, v, want, got)
		}
	}
}

func TestProxyURL(t *testing.T) {
	var asked atomic.Value
	proxy := lister(t, func(r *http.Request) int { asked.Store(r.URL.Host); return 200 })
	path := write(t, t.TempDir(), "server: 'http://api.invalid:6443', proxy-url: "+proxy.URL, "token: t")
	if err := list(t, path); err != nil || asked.Load() != "api.invalid:6443" {
		t.Errorf("proxy was asked for %v, %v", asked.Load(), err)
	}
}

// TestExec checks that the client caches a plugin's token until it expires or the API
// server refuses it.
func TestExec(t *testing.T) {
	dir := t.TempDir()
	runs := filepath.Join(dir, "runs")
	script := `#!/bin/sh
echo "$KUBERNETES_EXEC_INFO $1 $EXTRA" >> ` + runs + `
n=$(wc -l < ` + runs + `)
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t'$n'"'"$EXPIRES"'}}'
`
	if err := os.WriteFile(filepath.Join(dir, "plugin"), []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	var token string
	var status int
	srv := lister(t, func(r *http.Request) int { token = r.Header.Get("Authorization"); return status })
	load := func(expires time.Time) *Leases {
		t.Helper()
		_ = os.Remove(runs)
		cfg, err := Load(t.Context(), write(t, dir, "server: "+srv.URL, fmt.Sprintf(
			"exec: {command: ./plugin, apiVersion: client.authentication.k8s.io/v1, args: [arg], provideClusterInfo: true, env: [{name: EXTRA, value: e}, {name: EXPIRES, value: ',\"expirationTimestamp\":\"%s\"'}]}",
			expires.UTC().Format(time.RFC3339))))
		if err != nil {
			t.Fatal(err)
		}
		cfg.QPS = -1
		return &Leases{Client: NewClient(cfg), Namespace: "n"}
	}
	call := func(l *Leases, answer int, want string) {
		t.Helper()
		status = answer
		_, _, err := l.List(t.Context())
		if (err == nil) != (answer == 200) || token != "Bearer "+want {
			t.Errorf("token %q, %v; want %q", token, err, want)
		}
	}
	l := load(time.Now().Add(time.Hour))
	call(l, 200, "t1")
	call(l, 401, "t1")
	call(l, 200, "t2")
	call(l, 200, "t2")
	info, _ := os.ReadFile(runs)
	if !strings.Contains(string(info), `"server":"`+srv.URL+`"`) || !strings.Contains(string(info), " arg e") {
		t.Errorf("plugin was told %s", info)
	}
	l = load(time.Now().Add(-time.Second))
	call(l, 200, "t1")
	call(l, 200, "t2") // the first has expired
}

// TestSlowExec checks that a plugin that takes longer than a call may take continues to
// run, once, and that the next calls get its credentials.
func TestSlowExec(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	script := `#!/bin/sh
echo run >> ` + path("runs") + `
while ! [ -e ` + path("go on") + ` ]; do sleep 0.01; done
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}'
`
	script = strings.ReplaceAll(script, path("go on"), "'"+path("go on")+"'")
	if err := os.WriteFile(path("plugin"), []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	srv := lister(t, func(*http.Request) int { return 200 })
	cfg, err := Load(t.Context(), write(t, dir, "server: "+srv.URL, "exec: {command: ./plugin, apiVersion: client.authentication.k8s.io/v1}"))
	if err != nil {
		t.Fatal(err)
	}
	l := &Leases{Client: NewClient(cfg), Namespace: "n", Timeout: 100 * time.Millisecond}
	for range 3 {
		if _, _, err := l.List(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "./plugin") {
			t.Errorf("while the plugin runs: %v", err)
		}
	}
	if err := os.WriteFile(path("go on"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.Timeout = time.Minute
	if _, _, err := l.List(t.Context()); err != nil {
		t.Error(err)
	}
	if runs, _ := os.ReadFile(path("runs")); string(runs) != "run\n" {
		t.Errorf("the plugin ran %d times", strings.Count(string(runs), "run"))
	}
}

// TestExecFailures checks that an error names the plugin and what it did wrong.
func TestExecFailures(t *testing.T) {
	dir := t.TempDir()
	srv := lister(t, func(*http.Request) int { return 200 })
	for name, c := range map[string]struct{ script, want string }{
		"fails":         {"echo no login >&2; exit 3", "no login"},
		"not json":      {"echo hello", "answer"},
		"other version": {`echo '{"apiVersion":"v2","kind":"ExecCredential"}'`, "v2"},
		"nothing":       {`echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{}}'`, "neither"},
		"half":          {`echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"clientCertificateData":"x"}}'`, "only one"},
	} {
		if err := os.WriteFile(filepath.Join(dir, "plugin"), []byte("#!/bin/sh\n"+c.script+"\n"), 0o700); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
		err := list(t, write(t, dir, "server: "+srv.URL, "exec: {command: ./plugin, apiVersion: client.authentication.k8s.io/v1}"))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "./plugin") {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := list(t, write(t, dir, "server: "+srv.URL, "exec: {command: fairlead-no-such-plugin, installHint: get it, apiVersion: client.authentication.k8s.io/v1}"))
	if err == nil || !strings.Contains(err.Error(), "get it") {
		t.Errorf("missing plugin: %v", err)
	}
	var se *StatusError
	if errors.As(err, &se) {
		t.Error("counted as an answer of the API server")
	}
}

// TestRenewedClientCertificate checks that the next connection uses a renewed kubeconfig.
// While the file is half written, the old certificate stays in use.
func TestRenewedClientCertificate(t *testing.T) {
	now := time.Now()
	config := pki.Config{Algorithm: v1alpha1.KeyECDSAP256, Validity: time.Hour, CAValidity: time.Hour}
	ca, err := pki.NewCA(config, "ca", now)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	renew := func(name string) []byte {
		t.Helper()
		client, err := ca.Issue(config, pki.Request{CommonName: name, Usages: pki.ClientAuth}, now)
		if err != nil {
			t.Fatal(err)
		}
		data, err := pki.Kubeconfig(pki.KubeconfigRequest{Cluster: "k", Server: "https://x", CA: ca.CertPEM(), User: name, Client: client})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	put := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(renew("first"))
	cfg, err := Load(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	used := func() string {
		t.Helper()
		c, err := cfg.TLS.GetClientCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf.Subject.CommonName
	}
	second := renew("second")
	for _, step := range []struct {
		data []byte
		want string
	}{{renew("first"), "first"}, {second[:len(second)/2], "first"}, {second, "second"}, {nil, "second"}} {
		put(step.data)
		if got := used(); got != step.want {
			t.Errorf("certificate of %s, want %s", got, step.want)
		}
	}
}

// TestHalfReplacedClientCertificate checks that, while only one of the two files of a
// certificate and its key has been replaced, connections use the old pair.
func TestHalfReplacedClientCertificate(t *testing.T) {
	now := time.Now()
	config := pki.Config{Algorithm: v1alpha1.KeyECDSAP256, Validity: time.Hour, CAValidity: time.Hour}
	ca, err := pki.NewCA(config, "ca", now)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put := func(name string, data []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	issue := func(name string) (cert, key []byte) {
		t.Helper()
		pair, err := ca.Issue(config, pki.Request{CommonName: name, Usages: pki.ClientAuth}, now)
		if err != nil {
			t.Fatal(err)
		}
		if key, err = pair.KeyPEM(); err != nil {
			t.Fatal(err)
		}
		return pair.CertPEM(), key
	}
	cert, key := issue("first")
	put("c.crt", cert)
	put("c.key", key)
	cert, key = issue("second")
	cfg, err := Load(t.Context(), write(t, dir, "server: https://x", "client-certificate: c.crt, client-key: c.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		data []byte
		want string
	}{{"c.crt", cert, "first"}, {"c.key", key, "second"}, {"c.key", nil, "second"}} {
		put(step.name, step.data)
		c, err := cfg.TLS.GetClientCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Leaf.Subject.CommonName; got != step.want {
			t.Errorf("behind %s: certificate of %s, want %s", step.name, got, step.want)
		}
	}
}
