// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// Bad input is refused at once, with what is wrong and what to do, and no error repeats a
// password.
// It observes HTTP-08 of docs/requirements.md.
func TestBadInput(t *testing.T) {
	kubeconfig, dir := fakeAPIServer(t), t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	exposed := filepath.Join(dir, "exposed")
	if err := os.WriteFile(exposed, []byte("canary"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(exposed, 0o644); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	changed := func(change func(*clientcmdapi.Config)) string {
		config, err := clientcmd.LoadFromFile(kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		change(config)
		path := filepath.Join(t.TempDir(), "config")
		if err := clientcmd.WriteToFile(*config, path); err != nil {
			t.Fatal(err)
		}
		return "--kubeconfig=" + path
	}
	proxied := func(url string) string {
		return changed(func(c *clientcmdapi.Config) { c.Clusters["test"].ProxyURL = url })
	}
	other := func(url string) string {
		return changed(func(c *clientcmdapi.Config) {
			c.Clusters["other"] = &clientcmdapi.Cluster{Server: c.Clusters["test"].Server, ProxyURL: url}
		})
	}
	for _, tt := range []struct {
		want string
		args []string
	}{
		{`no context "none" in the kubeconfig`, []string{"--context", "none"}},
		{"choose another with --port", []string{"--port", port}},
		{"choose a number from 0 to 65535", []string{"--port", "70000"}},
		{"choose another with --address", []string{"--address", "192.0.2.1", "--port", "0", "--accept-hosts", "x", "--insecure-no-auth"}},
		{"--accept-hosts is not set", []string{"--address", "0.0.0.0"}},
		{"--accept-hosts is not set", []string{"--address", ""}},
		{"--accept-hosts is not set", []string{"--address", "::"}},
		{"add --token-file", []string{"--address", "0.0.0.0", "--port", "0", "--accept-hosts", ".*"}},
		{"add --token-file", []string{"--address", "::", "--port", "0", "--disable-filter"}},
		{"add --token-file", []string{"--address", "", "--port", "0", "--accept-hosts", ".*"}},
		{"add --token-file", []string{"--address", "proxy.example.com", "--port", "0", "--accept-hosts", ".*"}},
		{"it is not a directory", []string{"--www", file}},
		{"name a directory", []string{"--www", filepath.Join(dir, "none")}},
		{"choose another --www-prefix", []string{"--www", dir, "--www-prefix", "/", "--port", "0"}},
		{"--accept-paths: pattern \"(\"", []string{"--accept-paths", "("}},
		{"--reject-methods: pattern \"[\"", []string{"--reject-methods", "["}},
		{"leave one of them out", []string{"--unix-socket", filepath.Join(dir, "s"), "--port", "1"}},
		{"not a socket", []string{"--unix-socket", file}},
		{"name the socket's path", []string{"--unix-socket", ""}},
		{"--token-file", []string{"--token-file", filepath.Join(dir, "none")}},
		{exposed + " has mode 0644", []string{"--token-file", exposed}},
		{"write a token into it", []string{"--token-file", file}},
		{"write it as host:port", []string{"--metrics-address", "9090"}},
		{"choose another address", []string{"--metrics-address", "127.0.0.1:" + port, "--port", "0"}},
		{"behind \" -- \"", []string{"kubectl"}},
		{"no command follows", []string{"--"}},
		{"cannot name a Unix socket", []string{"--unix-socket", filepath.Join(dir, "s"), "--", "true"}},
		{"add --write-kubeconfig", []string{"--tls"}},
		{"only a bastion leads there", []string{"--via", "direct"}},
		{"only a bastion leads there", []string{"--via", "network"}},
		{"add --via ssh=USER@HOST", []string{"--ssh-config", "none"}},
		{"read the SSH configuration", []string{"--via", "ssh=me@bastion", "--ssh-config", filepath.Join(dir, "none")}},
		{"choose another with --context-name", []string{"--port", "0", "--write-kubeconfig", kubeconfig, "--context-name", "test"}},
		{exposed + " has mode 0644", []string{"--port", "0", "--tls", "--write-kubeconfig", exposed}},
		{"does not know the scheme socks5h", []string{proxied("socks5h://u:canary@127.0.0.1:1")}},
		{"not valid", []string{proxied("http://u:can/ary@127.0.0.1:1")}},
		{"does not know the scheme socks5h", []string{other("socks5h://u:canary@127.0.0.1:1"), "--cluster", "other"}},
		{"not valid", []string{other("http://u:can/ary@127.0.0.1:1"), "--cluster", "other"}},
	} {
		cmd := fairlead(t.Context(), kubeconfig, append([]string{"proxy"}, tt.args...)...)
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), tt.want) || strings.Contains(string(out), "Starting") {
			t.Errorf("%q: %v, want %q\n%s", tt.args, err, tt.want, out)
		}
		if strings.Contains(string(out), "canary") || strings.Contains(string(out), "can/ary") {
			t.Errorf("%q: the output repeats the password:\n%s", tt.args, out)
		}
	}
}

// An answer of 502 does not repeat the password of the server's URL.
func TestNoPasswordInAnswers(t *testing.T) {
	config, err := clientcmd.LoadFromFile(fakeAPIServer(t))
	if err != nil {
		t.Fatal(err)
	}
	config.Clusters["test"].Server = "https://u:canary@127.0.0.1:" + daemontest.Ports(t, 1)[0]
	path := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	p := start(t, path, "--port", "0")
	resp, err := http.Get("http://" + p.address + "/version")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusBadGateway || !strings.Contains(string(body), "connection refused") || strings.Contains(string(body), "canary") {
		t.Errorf("status %d, %s, %v", resp.StatusCode, body, err)
	}
}

// Without --port, the port is 8001 of loopback, as that of kubectl proxy. The test has the port,
// or another program has it, so the proxy says which one it wants.
// It observes HTTP-02 of docs/requirements.md.
func TestDefaultPort(t *testing.T) {
	if l, err := net.Listen("tcp", "127.0.0.1:8001"); err == nil {
		defer l.Close()
	}
	out, err := fairlead(t.Context(), fakeAPIServer(t), "proxy").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "port 8001 of 127.0.0.1: another program has it") {
		t.Errorf("with the port taken: %v, %s", err, out)
	}
}

// A Unix socket serves, and is gone with the process. Metrics have a listener of their own.
// It observes HTTP-07 of docs/requirements.md.
func TestUnixSocketAndMetrics(t *testing.T) {
	socket, metrics := daemontest.SocketPath(t), "127.0.0.1:"+daemontest.Ports(t, 1)[0]
	p := start(t, fakeAPIServer(t), "--unix-socket", socket, "--metrics-address", metrics)
	if p.address != socket {
		t.Errorf("it serves on %q, want %q", p.address, socket)
	}
	if status, body := p.get(t, "/api"); status != http.StatusOK || !strings.Contains(body, "APIVersions") {
		t.Errorf("status %d: %s", status, body)
	}
	status, body := (&process{address: metrics}).get(t, "/metrics")
	if status != http.StatusOK || !strings.Contains(body, `fairlead_proxy_requests_total{code="200",method="GET"} 1`) {
		t.Errorf("metrics: status %d\n%s", status, body)
	}
	_ = p.Process.Signal(os.Interrupt)
	p.code(t)
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket stays: %v", err)
	}
}

// An API server that does not answer is a warning at the start and status 502 later: it
// may come back.
func TestUnreachable(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:` + daemontest.Ports(t, 1)[0] +
		`"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":""}}]}`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, config, "--port", "0")
	if status, body := p.get(t, "/api"); status != http.StatusBadGateway || !strings.Contains(body, `"kind":"Status"`) || !strings.Contains(body, "check that the cluster runs") {
		t.Errorf("status %d: %s", status, body)
	}
	daemontest.Eventually(t, bound, func() error {
		if !strings.Contains(p.stderr.String(), "Warning: ") {
			return os.ErrNotExist
		}
		return nil
	})
}

// On an address that other machines reach, the Host check holds as on loopback, and a
// warning says what the address means.
// It observes HTTP-06 of docs/requirements.md.
func TestNonLoopback(t *testing.T) {
	p := start(t, fakeAPIServer(t), "--address", "0.0.0.0", "--port", "0", "--accept-hosts", `proxy\.example\.com`, "--insecure-no-auth")
	_, port, err := net.SplitHostPort(p.address)
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{"proxy.example.com": 200, "proxy.example.com:" + port: 200, "127.0.0.1": 403, "localhost": 403, "attacker.example.com": 403} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+port+"/api", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("host %s: status %d, want %d", host, resp.StatusCode, want)
		}
	}
	if !strings.Contains(p.stderr.String(), "Warning: everyone who can reach 0.0.0.0") {
		t.Errorf("standard error is\n%s", p.stderr.String())
	}
}
