// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"encoding/base64"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
)

// TestAddContext: the context has the proxy as its proxy-url and the credentials of the
// current one; afterwards the file is as it was. The command warns about an API server on
// loopback.
// It observes SOCKS-06 and SOCKS-10 of docs/requirements.md.
func TestAddContext(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	const text = `apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: c, context: {cluster: c, user: u, namespace: team}}]
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o, out := newOptions(t)
	o.Cluster.KubeConfig, o.WriteKubeconfig = &file, file
	remove, err := o.addContext(&url.URL{Scheme: "socks5", Host: "127.0.0.1:1080", User: url.UserPassword("fairlead", "hidden")})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	added := config.Contexts["socks5-c"]
	if added == nil || added.Namespace != "team" || config.Clusters[added.Cluster].ProxyURL != "socks5://fairlead:hidden@127.0.0.1:1080" ||
		config.AuthInfos[added.AuthInfo].Token != "secret" || config.CurrentContext != "c" {
		t.Errorf("%+v", config)
	}
	if !strings.Contains(out.String(), "Warning: the API server's address 127.0.0.1:6443") || strings.Contains(out.String(), "hidden") {
		t.Errorf("%q", out)
	}
	remove()
	if now, err := os.ReadFile(file); err != nil || string(now) != text {
		t.Errorf("%v, the file is now %q", err, now)
	}
	none := "none"
	o.Cluster.Context = &none
	if _, err := o.addContext(&url.URL{Scheme: "socks5", Host: "127.0.0.1:1080"}); err == nil || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("a context that does not exist: %v", err)
	}
}

// TestCommandHasFlags: the kubeconfig of a command and the context of --write-kubeconfig are for the cluster and the user that the
// flags choose, and not for those of the context alone. A token on the command line is a secret as one of the file is.
func TestCommandHasFlags(t *testing.T) {
	source := filepath.Join(t.TempDir(), "config")
	const text = `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "https://192.0.2.1:6443"}}], users: [],
 contexts: [{name: c, context: {cluster: c}}]}`
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(t.TempDir(), "none")
	for name, file := range map[string]string{"c": source, "server": none} {
		o, out := newOptions(t)
		t.Setenv("KUBECONFIG", file)
		*o.Cluster.Impersonate, *o.Cluster.APIServer, *o.Cluster.BearerToken = "alice", "https://192.0.2.9:6443", "of-the-flag"
		proxy := &url.URL{Scheme: "socks5", Host: "127.0.0.1:1080", User: url.UserPassword("fairlead", "hidden")}
		env, remove, err := o.commandEnvironment(proxy, &rest.Config{Host: "https://192.0.2.9:6443"})
		if err != nil {
			t.Fatal(err)
		}
		defer remove()
		config, err := clientcmd.LoadFromFile(env["KUBECONFIG"])
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		c := config.Contexts[config.CurrentContext]
		if c == nil || config.CurrentContext != name || config.Clusters[c.Cluster].Server != "https://192.0.2.9:6443" ||
			config.AuthInfos[c.AuthInfo].Impersonate != "alice" || config.AuthInfos[c.AuthInfo].Token != "of-the-flag" {
			t.Errorf("%s: %+v", name, config)
		}
		o.WriteKubeconfig = filepath.Join(t.TempDir(), "shared")
		if err := os.WriteFile(o.WriteKubeconfig, []byte("{apiVersion: v1, kind: Config}\n"), 0o644); err != nil { //nolint:gosec // readable on purpose
			t.Fatal(err)
		}
		proxy.User, o.InsecureNoAuth = nil, true
		if _, err := o.addContext(proxy); err == nil || !strings.Contains(err.Error(), "other users") {
			t.Errorf("%s: a token in a file that other users can read: %v", name, err)
		}
	}
}

// TestAddContextElsewhere: in another directory, the context still finds the files and the
// plugin that its kubeconfig names by relative paths.
func TestAddContextElsewhere(t *testing.T) {
	got := make(chan string, 1)
	api := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got <- req.Header.Get("Authorization") }))
	defer api.Close()
	home, other := t.TempDir(), filepath.Join(t.TempDir(), "config")
	if err := os.Mkdir(filepath.Join(home, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"pki/ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})),
		"plugin":     "#!/bin/sh\necho '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"from-plugin\"}}'\n",
		"config": `apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "` + api.URL + `", certificate-authority: pki/ca.crt}}]
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, interactiveMode: Never}}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
`,
	} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(content), 0o700); err != nil { //nolint:gosec // one of them is a program
			t.Fatal(err)
		}
	}
	o, _ := newOptions(t)
	source := filepath.Join(home, "config")
	o.Cluster.KubeConfig, o.WriteKubeconfig = &source, other
	remove, err := o.addContext(&url.URL{Scheme: "socks5", Host: "127.0.0.1:1080", User: url.UserPassword("me", "secret")})
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: other},
		&clientcmd.ConfigOverrides{CurrentContext: "socks5-c"}).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.Proxy = nil // nothing listens there
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Get(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if auth := <-got; auth != "Bearer from-plugin" {
		t.Errorf("the API server got %q", auth)
	}
}

// TestAddContextRefuses: with TLS, a context whose clients would not accept the proxy's
// certificate is refused with the reason, and the file stays as it was.
func TestAddContextRefuses(t *testing.T) {
	settings, now := pki.Config{Algorithm: v1alpha1.KeyECDSAP256, Validity: time.Hour, CAValidity: time.Hour}, time.Now()
	ca, err := pki.NewCA(settings, "cluster", now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(settings, pki.Request{CommonName: "proxy", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Usages: pki.ServerAuth}, now)
	if err != nil {
		t.Fatal(err)
	}
	certificate := filepath.Join(t.TempDir(), "tls.crt")
	if err := os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Cert.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"": "", "tls-server-name: kubernetes, ": "for the name kubernetes"} {
		text := `{apiVersion: v1, kind: Config, current-context: c, users: [], contexts: [{name: c, context: {cluster: c}}],
  clusters: [{name: c, cluster: {` + name + `server: "https://192.0.2.1:6443", certificate-authority-data: ` + base64.StdEncoding.EncodeToString(ca.CertPEM()) + `}}]}
`
		file := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o, _ := newOptions(t)
		o.Cluster.KubeConfig, o.WriteKubeconfig, o.TLSCert = &file, file, certificate
		remove, err := o.addContext(&url.URL{Scheme: "https", Host: "127.0.0.1:1080", User: url.UserPassword("me", "secret")})
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v", name, err)
		case err == nil:
			remove()
		}
		if now, err := os.ReadFile(file); err != nil || string(now) != text {
			t.Errorf("%q: the file is now %q, %v", name, now, err)
		}
	}
}

// TestAddContextWithoutPassword: a context is refused if the proxy takes tokens only, or certificates that its user has not.
func TestAddContextWithoutPassword(t *testing.T) {
	for name, c := range map[string]struct {
		user   string
		set    func(*Options)
		refuse bool
	}{
		"tokens":                          {"client-certificate-data: eA==, client-key-data: eA==", func(o *Options) { o.TokenReview = true }, true},
		"certificates, the user has none": {"token: x", func(o *Options) { o.ClientCA = "ca.crt" }, true},
		"certificates":                    {"client-certificate-data: eA==, client-key-data: eA==", func(o *Options) { o.ClientCA = "ca.crt" }, false},
		"an exec plugin may have one":     {"exec: {apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Never}", func(o *Options) { o.ClientCA = "ca.crt" }, false},
		"no authentication":               {"token: x", func(o *Options) { o.InsecureNoAuth = true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			text := `{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {` + c.user + `}}], contexts: [{name: c, context: {cluster: c, user: u}}],
  clusters: [{name: c, cluster: {server: "https://192.0.2.1:6443"}}]}
`
			file := filepath.Join(t.TempDir(), "config")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			o, _ := newOptions(t)
			o.Cluster.KubeConfig, o.WriteKubeconfig = &file, file
			c.set(o)
			remove, err := o.addContext(&url.URL{Scheme: "https", Host: "127.0.0.1:1080"})
			if (err != nil) != c.refuse || c.refuse && !strings.Contains(err.Error(), "--password-file") {
				t.Errorf("%v, want refused %v", err, c.refuse)
			}
			if err == nil {
				remove()
			}
			if now, err := os.ReadFile(file); err != nil || string(now) != text {
				t.Errorf("the file is now %q, %v", now, err)
			}
		})
	}
}

// TestWarnOfLoopback: the user learns that Go programs would not use the proxy for a server on this machine.
func TestWarnOfLoopback(t *testing.T) {
	for host, want := range map[string]bool{"https://127.0.0.1:6443": true, "https://localhost:6443": true, "https://192.0.2.1:6443": false} {
		o, out := newOptions(t)
		o.URLFile = filepath.Join(t.TempDir(), "url")
		remove, err := o.announce(&url.URL{Scheme: "socks5", Host: "127.0.0.1:1080"}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1080}, &rest.Config{Host: host})
		if err != nil {
			t.Fatal(err)
		}
		remove()
		if got := strings.Contains(out.String(), "--write-kubeconfig"); got != want {
			t.Errorf("%s: warned %v, want %v:\n%s", host, got, want, out)
		}
	}
}

// TestAPIServerAddress: the API server's address is one that --allow takes.
func TestAPIServerAddress(t *testing.T) {
	for host, want := range map[string]string{
		"https://api.example.com": "api.example.com:443", "https://10.0.0.1:6443/path": "10.0.0.1:6443", "http://api.example.com": "api.example.com:80",
		"https://[fd00::1]:6443": "[fd00::1]:6443",
	} {
		got, err := apiServerAddress(&rest.Config{Host: host})
		if err != nil || got != want {
			t.Errorf("%s: %s, %v", host, got, err)
		}
		if _, err := destinations.ParseRules(got); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// TestDocs: docs/socks5.md names only flags that exist, and has the defaults of the limits.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../../docs/socks5.md")
	if err != nil {
		t.Fatal(err)
	}
	cmd := NewCommand(genericiooptions.IOStreams{})
	theirs := []string{"--proxytunnel", "--deny-destinations", "--allow-destinations"} // of curl and of the agent
	for _, flag := range regexp.MustCompile(`--[a-z][a-z-]+`).FindAllString(string(text), -1) {
		if cmd.Flags().Lookup(flag[2:]) == nil && !slices.Contains(theirs, flag) {
			t.Errorf("the page has %s, which does not exist", flag)
		}
	}
	rows := regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| (\\d\\w*) \\|").FindAllStringSubmatch(string(text), -1)
	if len(rows) != 5 {
		t.Errorf("%q", rows)
	}
	for _, row := range rows {
		if f := cmd.Flags().Lookup(row[1]); f == nil || f.DefValue != row[2] {
			t.Errorf("%s: the page has %s, the flag %+v", row[1], row[2], f)
		}
	}
}

// TestPortTaken: the error says what to choose instead.
func TestPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o, _ := newOptions(t)
	o.Listen = l.Addr().String()
	if err := run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "port 0 picks a free one") {
		t.Errorf("on a port that is taken: %v", err)
	}
}
