// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bytes"
	"cmp"
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/net/http/httpproxy"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// The API server of these tests has a certificate for this name, which no DNS server knows.
const apiServer = "example.com"

// kubectlAnswers are those to kubectl, which asks what the API has.
var kubectlAnswers = map[string]string{
	"/api":                                  `{"kind": "APIVersions", "versions": ["v1"]}`,
	"/apis":                                 `{"kind": "APIGroupList", "apiVersion": "v1", "groups": []}`,
	"/api/v1":                               `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [{"name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "verbs": ["get", "list"]}]}`,
	"/api/v1/namespaces/default/pods/hello": `{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "hello", "namespace": "default"}, "spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Running"}}`,
}

// fakeAPI is a kube-apiserver that lists one Pod and runs one kind of exec.
func fakeAPI(t *testing.T) *httptest.Server {
	t.Helper()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case websocket.IsWebSocketUpgrade(r):
			execByWebSocket(t, w, r)
		case httpstream.IsUpgradeRequest(r):
			execBySPDY(t, w, r)
		default:
			w.Header().Set("Content-Type", "application/json")
			const pods = `{"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "hello"}}]}`
			_, _ = io.WriteString(w, cmp.Or(kubectlAnswers[r.URL.Path], pods))
		}
	}))
	t.Cleanup(srv.Close)
	return srv
}

const success = `{"kind": "Status", "apiVersion": "v1", "status": "Success"}`

func execByWebSocket(t *testing.T, w http.ResponseWriter, r *http.Request) {
	u := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}
	ws, err := u.Upgrade(w, r, nil)
	if err != nil {
		t.Error(err)
		return
	}
	defer ws.Close() //nolint:errcheck // the client has what it wants
	_ = ws.WriteMessage(websocket.BinaryMessage, []byte("\x01by websocket"))
	_ = ws.WriteMessage(websocket.BinaryMessage, []byte("\x03"+success))
	_ = ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
	_, _, _ = ws.ReadMessage()
}

func execBySPDY(t *testing.T, w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
		t.Error(err)
		return
	}
	streams := make(chan httpstream.Stream, 4)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close() //nolint:errcheck // the client has what it wants
	number := 2
	if r.URL.Query().Get("stderr") == "true" {
		number = 3
	}
	for range number {
		s := <-streams
		text := map[string]string{corev1.StreamTypeStdout: "by spdy", corev1.StreamTypeError: success}[s.Headers().Get(corev1.StreamType)]
		_, _ = io.WriteString(s, text)
		_ = s.Close()
	}
	<-conn.CloseChan()
}

// sniffer keeps what passes through the proxy.
type sniffer struct {
	gateway.Conn
	w *tap
}

type tap struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *sniffer) Write(b []byte) (int, error) {
	s.w.mu.Lock()
	s.w.b.Write(b)
	s.w.mu.Unlock()
	return s.Conn.Write(b)
}

// kubeconfig writes one as the documents have it and loads it.
func kubeconfig(t *testing.T, srv *httptest.Server, server, proxyURL string) (*rest.Config, error) {
	t.Helper()
	return clientcmd.BuildConfigFromFlags("", kubeconfigFile(t, srv, server, proxyURL))
}

func kubeconfigFile(t *testing.T, srv *httptest.Server, server, proxyURL string) (path string) {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["default"] = &clientcmdapi.Cluster{
		Server: server, ProxyURL: proxyURL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}),
	}
	c.AuthInfos["default"] = &clientcmdapi.AuthInfo{Token: "secret-token"}
	c.Contexts["default"] = &clientcmdapi.Context{Cluster: "default", AuthInfo: "default"}
	c.CurrentContext = "default"
	path = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// newAPIWorld is a world with the API server, and everything that clients send to it.
func newAPIWorld(t *testing.T, change ...func(*world, *Config)) (*world, *httptest.Server, *tap) {
	t.Helper()
	srv, sent := fakeAPI(t), &tap{}
	w := newWorld(t, append(change, func(w *world, _ *Config) {
		w.name(apiServer, netip.MustParseAddrPort(srv.Listener.Addr().String()))
	})...)
	w.dial = func(ctx context.Context, d gateway.Destination) (gateway.Conn, error) {
		nc, err := (&world{}).Dial(ctx, d)
		if err != nil {
			return nil, err
		}
		return &sniffer{nc, sent}, nil
	}
	return w, srv, sent
}

func userinfo() *url.Userinfo { return url.UserPassword(testUser, testPassword) }

// TestKubeconfigWithProxyURL: a client with proxy-url lists Pods of an API server that only
// the proxy can name, by socks5 and by http; also one on loopback goes through the proxy. The
// proxy sees TLS and none of its content.
// It observes SOCKS-03, SOCKS-06 and SOCKS-10 of docs/requirements.md.
func TestKubeconfigWithProxyURL(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"socks5", "http"} {
		w, srv, sent := newAPIWorld(t)
		proxyURL := (&url.URL{Scheme: scheme, Host: w.addr, User: userinfo()}).String()
		for _, server := range []string{"https://" + apiServer + ":6443", srv.URL} {
			config, err := kubeconfig(t, srv, server, proxyURL)
			if err != nil {
				t.Fatal(err)
			}
			pods, err := kubernetes.NewForConfigOrDie(config).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(pods.Items) != 1 || pods.Items[0].Name != "hello" {
				t.Errorf("%s by %s: %v, %v", server, scheme, pods, err)
			}
		}
		if got := w.hosts(); !slices.Equal(got, []string{apiServer, "127.0.0.1"}) {
			t.Errorf("%s: the proxy was asked for %q", scheme, got)
		}
		sent.mu.Lock()
		b := sent.b.Bytes()
		if len(b) == 0 || b[0] != 0x16 || bytes.Contains(b, []byte("secret-token")) || bytes.Contains(b, []byte("/pods")) {
			t.Errorf("%s: the proxy saw %.100q", scheme, b)
		}
		sent.mu.Unlock()
		srv.CloseClientConnections()
	}
}

// TestProxyURLSchemes: kubeconfigs accept socks5 and refuse socks5h.
// It observes SOCKS-09 of docs/requirements.md.
// It also observes OLD-98 of docs/requirements.md.
func TestProxyURLSchemes(t *testing.T) {
	t.Parallel()
	srv := fakeAPI(t)
	for scheme, ok := range map[string]bool{"socks5": true, "http": true, "https": true, "socks5h": false} {
		if _, err := kubeconfig(t, srv, "https://"+apiServer, scheme+"://127.0.0.1:1080"); (err == nil) != ok {
			t.Errorf("%s: %v", scheme, err)
		}
	}
}

// TestProxyEnvironment: clients read both spellings of the variable, send socks5 and socks5h
// to the proxy, and ignore it for a server on this machine.
// It observes SOCKS-05, SOCKS-09 and SOCKS-10 of docs/requirements.md.
func TestProxyEnvironment(t *testing.T) {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy"} {
		for _, scheme := range []string{"socks5", "socks5h", "http"} {
			for _, other := range []string{"HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"} {
				t.Setenv(other, "")
				if err := os.Unsetenv(other); err != nil {
					t.Fatal(err)
				}
			}
			w, srv, _ := newAPIWorld(t)
			u := &url.URL{Scheme: scheme, Host: w.addr, User: userinfo()}
			t.Setenv(name, u.String())
			choose := httpproxy.FromEnvironment().ProxyFunc()
			for i, server := range []string{"https://" + apiServer + ":6443", srv.URL} {
				config, err := kubeconfig(t, srv, server, "")
				if err != nil {
					t.Fatal(err)
				}
				config.Proxy = func(r *http.Request) (*url.URL, error) { return choose(r.URL) } // as net/http does, which reads it once
				if _, err := kubernetes.NewForConfigOrDie(config).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); err != nil {
					t.Errorf("%s=%s, server %d: %v", name, scheme, i, err)
				}
			}
			if got := w.hosts(); !slices.Equal(got, []string{apiServer}) {
				t.Errorf("%s=%s: the proxy was asked for %q", name, scheme, got)
			}
			srv.CloseClientConnections()
		}
	}
}

// TestExecWithSocks5hInEnvironment: with socks5h in the environment, WebSocket streams work and
// the SPDY fallback is refused by the client, which is why the proxy gives commands an http URL
// for HTTPS_PROXY.
// It observes SOCKS-09 of docs/requirements.md.
func TestExecWithSocks5hInEnvironment(t *testing.T) {
	t.Parallel()
	w, srv, _ := newAPIWorld(t)
	config, target := execTarget(t, srv, "")
	u := &url.URL{Scheme: "socks5h", Host: w.addr, User: userinfo()}
	config.Proxy = http.ProxyURL(u) // as from the environment, which net/http reads once
	byWebSocket, err := remotecommand.NewWebSocketExecutor(config, "GET", target.String())
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := byWebSocket.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out}); err != nil || out.String() != "by websocket" {
		t.Errorf("%q, %v", out.String(), err)
	}
	bySPDY, err := remotecommand.NewSPDYExecutor(config, "POST", target)
	if err != nil {
		t.Fatal(err)
	}
	if err := bySPDY.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out}); err == nil || !strings.Contains(err.Error(), "socks5h") {
		t.Errorf("SPDY through socks5h: %v", err)
	}
	if got := w.hosts(); !slices.Equal(got, []string{apiServer}) {
		t.Errorf("the proxy was asked for %q", got)
	}
}

// TestKubectlWithEnvironment: kubectl reads the variable of proxies: with socks5h, requests and exec by WebSocket go through the
// proxy, and exec by SPDY is refused; with http, which the proxy gives to commands, all of them work.
func TestKubectlWithEnvironment(t *testing.T) {
	t.Parallel()
	kubectl := daemontest.Components(t, "kubectl")["kubectl"]
	for scheme, spdyWorks := range map[string]bool{"socks5h": false, "http": true} {
		w, srv, _ := newAPIWorld(t)
		path := kubeconfigFile(t, srv, "https://"+apiServer+":6443", "")
		run := func(websockets string, args ...string) (string, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, kubectl, append([]string{"--kubeconfig", path, "--cache-dir", t.TempDir(), "--request-timeout", "20s"}, args...)...)
			proxy := url.URL{Scheme: scheme, Host: w.addr, User: userinfo()}
			cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "HTTPS_PROXY=" + proxy.String(), "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=" + websockets}
			out, err := cmd.CombinedOutput()
			return string(out), err
		}
		if out, err := run("true", "get", "pods", "-o", "name"); err != nil || out != "pod/hello\n" {
			t.Errorf("%s: get: %q, %v", scheme, out, err)
		}
		if out, err := run("true", "exec", "hello", "--", "x"); err != nil || out != "by websocket" {
			t.Errorf("%s: exec by WebSocket: %q, %v", scheme, out, err)
		}
		switch out, err := run("false", "exec", "hello", "--", "x"); {
		case spdyWorks && (err != nil || out != "by spdy"), !spdyWorks && (err == nil || !strings.Contains(out, "socks5h")):
			t.Errorf("%s: exec by SPDY: %q, %v", scheme, out, err)
		}
		if got := w.hosts(); slices.ContainsFunc(got, func(host string) bool { return host != apiServer }) || len(got) < 3 {
			t.Errorf("%s: the proxy was asked for %q", scheme, got)
		}
		srv.CloseClientConnections()
	}
}

// execTarget is a client's configuration and the URL of an exec.
func execTarget(t *testing.T, srv *httptest.Server, proxyURL string) (*rest.Config, *url.URL) {
	t.Helper()
	config, err := kubeconfig(t, srv, "https://"+apiServer+":6443", proxyURL)
	if err != nil {
		t.Fatal(err)
	}
	return config, execURL(t, config)
}

func execURL(t *testing.T, config *rest.Config) *url.URL {
	t.Helper()
	target, err := url.Parse(config.Host + "/api/v1/namespaces/default/pods/hello/exec?stdout=true&command=x")
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// execByBoth runs an exec by WebSocket and one by SPDY.
func execByBoth(t *testing.T, config *rest.Config) {
	t.Helper()
	target := execURL(t, config)
	byWebSocket, err := remotecommand.NewWebSocketExecutor(config, "GET", target.String())
	if err != nil {
		t.Fatal(err)
	}
	bySPDY, err := remotecommand.NewSPDYExecutor(config, "POST", target)
	if err != nil {
		t.Fatal(err)
	}
	for want, executor := range map[string]remotecommand.Executor{"by websocket": byWebSocket, "by spdy": bySPDY} {
		var out strings.Builder
		if err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out}); err != nil || out.String() != want {
			t.Errorf("%q, %v; want %q", out.String(), err, want)
		}
	}
}

// TestExecThroughProxy: exec works by WebSocket and by SPDY, through socks5 and http proxies
// with a user and a password.
// It observes SOCKS-11 of docs/requirements.md.
// It also observes OLD-100 of docs/requirements.md.
func TestExecThroughProxy(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"socks5", "http"} {
		w, srv, _ := newAPIWorld(t)
		config, _ := execTarget(t, srv, (&url.URL{Scheme: scheme, Host: w.addr, User: userinfo()}).String())
		execByBoth(t, config)
		if got := w.hosts(); !slices.Equal(got, []string{apiServer, apiServer}) {
			t.Errorf("%s: the proxy was asked for %q", scheme, got)
		}
		srv.CloseClientConnections()
	}
}
