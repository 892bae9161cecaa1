// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// users is a kubeconfig as a person writes it: with comments, order and a field that no
// program knows.
const users = `# my clusters
kind: Config
apiVersion: v1
current-context: work
x-note: keep me
clusters:
- {name: work, cluster: {server: "https://10.0.0.1:6443", certificate-authority-data: Q0E=}}
users:
- {name: me, user: {token: abc}}
contexts:
- {name: work, context: {cluster: work, user: me, namespace: team}} # daily
`

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if content == "" {
		return path
	}
	if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, path string) *clientcmdapi.Config {
	t.Helper()
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func add(t *testing.T, path, name string) *Added {
	t.Helper()
	a, err := Add(path, ForServer(name, "http://127.0.0.1:8001", "team", nil, ""))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func remove(t *testing.T, a *Added) {
	t.Helper()
	if err := a.Remove(); err != nil {
		t.Fatal(err)
	}
}

// The entry is usable while it is there, the other contexts and the current one stay, and
// at the end the file is what it was, byte for byte and with its mode.
func TestRestores(t *testing.T) {
	path := write(t, users)
	a := add(t, path, "proxy-work")
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: path},
		&clientcmd.ConfigOverrides{CurrentContext: "proxy-work"}).ClientConfig()
	if err != nil || config.Host != "http://127.0.0.1:8001" {
		t.Errorf("the context leads to %+v, %v", config, err)
	}
	if c := load(t, path); c.CurrentContext != "work" || c.AuthInfos["me"].Token != "abc" || c.Contexts["proxy-work"].Namespace != "team" {
		t.Errorf("with the entry the file has %+v", c)
	}
	remove(t, a)
	if data, err := os.ReadFile(path); err != nil || string(data) != users {
		t.Errorf("the file is now\n%s%v", data, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
}

// A file that did not exist goes again, and is for its owner alone while it is there.
func TestNewFile(t *testing.T) {
	path := write(t, "")
	a := add(t, path, "proxy")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	remove(t, a)
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the file stays: %v", err)
	}
	remove(t, a) // a second time does no harm
}

// What another program has changed meanwhile stays; only the entry goes, and with it a
// current context that points to it.
func TestChangedMeanwhile(t *testing.T) {
	path := write(t, users)
	a, b := add(t, path, "one"), add(t, path, "two")
	config := load(t, path)
	config.CurrentContext = "one"
	config.Clusters["new"] = &clientcmdapi.Cluster{Server: "https://new"}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	remove(t, a)
	got := load(t, path)
	if has(got, "one") || !has(got, "two") || got.Clusters["new"] == nil || got.Contexts["work"] == nil || got.CurrentContext != "" {
		t.Errorf("the file has %+v", got)
	}
	remove(t, b)
	if got := load(t, path); has(got, "two") || got.Clusters["new"] == nil {
		t.Errorf("the file has %+v", got)
	}
}

// A user's own entry of the name is not touched. One that a killed run has left is
// replaced, and the end of that run's successor leaves none.
func TestNameTaken(t *testing.T) {
	path := write(t, users)
	if _, err := Add(path, ForServer("work", "http://127.0.0.1:1", "", nil, "")); err == nil || !strings.Contains(err.Error(), "--context-name") {
		t.Errorf("the user's entry: %v", err)
	}
	if data, _ := os.ReadFile(path); string(data) != users {
		t.Errorf("the file is now\n%s", data)
	}
	killed := add(t, path, "proxy")
	successor := add(t, path, "proxy")
	remove(t, killed) // it is not its entry any more
	if !has(load(t, path), "proxy") {
		t.Error("a former run removed its successor's entry")
	}
	remove(t, successor)
	if has(load(t, path), "proxy") {
		t.Error("the entry stays")
	}
}

// A file that is no kubeconfig is refused and stays.
func TestUnreadable(t *testing.T) {
	path := write(t, "{")
	if _, err := Add(path, ForServer("proxy", "http://127.0.0.1:1", "", nil, "")); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	if data, _ := os.ReadFile(path); string(data) != "{" {
		t.Errorf("the file is now %q", data)
	}
}

// Proxy URLs that client-go does not take are refused here, each with a reason, and no
// error repeats a password.
func TestParseProxyURL(t *testing.T) {
	for text, want := range map[string]string{
		"socks5://127.0.0.1:1080": "", "http://u:canary@proxy:3128": "", "https://proxy": "",
		"socks5h://u:canary@127.0.0.1:1080": "client-go does not know the scheme socks5h",
		"ftp://u:canary@proxy":              "client-go knows http, https and socks5",
		"socks5://":                         "names no host",
		"http://u:can/ary@proxy":            "not valid",
		"http://u:canary@pro xy":            "not valid",
		"http://u:canary%zz@proxy":          "not valid",
		"127.0.0.1:1080":                    "not valid",
	} {
		u, err := ParseProxyURL(text)
		switch {
		case want == "" && (err != nil || u.String() != text):
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		case err != nil && strings.Contains(err.Error(), "can"+"ary"):
			t.Errorf("%s: the error repeats the password: %v", text, err)
		}
	}
}

// The entry keeps the credentials and the server of its source and has the proxy-url,
// which client-go then uses also for a loopback address.
func TestThrough(t *testing.T) {
	source, err := clientcmd.Load([]byte(users))
	if err != nil {
		t.Fatal(err)
	}
	source.Clusters["work"].Server = "https://127.0.0.1:6443"
	source.Clusters["work"].TLSServerName = "kubernetes"
	e, warnings, err := Through(source, "work", "socks-work", &url.URL{Scheme: "https", Host: "proxy:443", User: url.UserPassword("u", "canary")})
	if err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(warnings, "\n"); len(warnings) != 3 || !strings.Contains(all, "loopback") || !strings.Contains(all, `"kubernetes"`) || strings.Contains(all, "canary") {
		t.Errorf("the warnings are %q", warnings)
	}
	data, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host, nil)
	if err != nil {
		t.Fatal(err)
	}
	if u, err := config.Proxy(req); err != nil || u.Host != "proxy:443" || config.BearerToken != "abc" || config.Host != "https://127.0.0.1:6443" {
		t.Errorf("the context leads through %v to %+v, %v", u, config, err)
	}
	if source.Clusters["work"].ProxyURL != "" {
		t.Error("the source is changed")
	}
	if _, warnings, err := Through(source, "work", "x", &url.URL{Scheme: "socks5", Host: "proxy:1"}); err != nil || len(warnings) != 1 {
		t.Errorf("a SOCKS5 proxy has the warnings %q, %v", warnings, err)
	}
	if _, _, err := Through(source, "none", "x", &url.URL{}); err == nil {
		t.Error("a context that does not exist is taken")
	}
}
