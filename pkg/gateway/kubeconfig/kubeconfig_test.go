// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"bytes"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
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

// What another program has changed meanwhile stays; only the entry goes. If it was made the current context, the former
// one is again.
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
	if has(got, "one") || !has(got, "two") || got.Clusters["new"] == nil || got.Contexts["work"] == nil || got.CurrentContext != "work" {
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
	replace(t, path, `(pid: )\d+`, "${1}"+strconv.Itoa(endedProcess(t)))
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

// TestRunning: the entry of a run that goes on is not replaced, and stays. That of one whose process has ended is, also where
// another process has the number now, and where the machine has been started again.
func TestRunning(t *testing.T) {
	path := write(t, users)
	running := add(t, path, "proxy")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Add(path, ForServer("proxy", "http://127.0.0.1:8002", "", nil, "")); err == nil || !strings.Contains(err.Error(), "--context-name") || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("the entry of a run that goes on: %v", err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(before, now) {
		t.Errorf("the file is now\n%s%v", now, err)
	}
	other := add(t, path, "other") // beside it
	remove(t, running)
	remove(t, other)
	if now := load(t, path); has(now, "proxy") || has(now, "other") || now.CurrentContext != "work" || now.AuthInfos["me"].Token != "abc" || now.Contexts["work"].Namespace != "team" {
		t.Errorf("after both have ended, the file has %+v", now)
	}
	for what, leave := range map[string]func(){
		"another process has its number": func() { replace(t, path, `(started: ).*`, `${1}"1"`) },
		"a start of the machine":         func() { replace(t, path, `(boot: ).*`, "${1}before") },
		"an older version":               func() { replace(t, path, `\n *(pid|started|boot): .*`, "") },
	} {
		add(t, path, "proxy")
		leave()
		successor, err := Add(path, ForServer("proxy", "http://127.0.0.1:8002", "", nil, ""))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		remove(t, successor)
	}
}

// TestExposed: an entry with a token, a key or the password of a proxy is not written where other users can read it, also by
// way of a link. One without, which a plugin for credentials makes, is.
func TestExposed(t *testing.T) {
	through := func(user *clientcmdapi.AuthInfo, proxy string) Entry {
		return Entry{Name: "proxy", Cluster: &clientcmdapi.Cluster{Server: "https://x", ProxyURL: proxy}, User: user}
	}
	plugin := &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{Command: "x"}}
	for what, c := range map[string]struct {
		e      Entry
		secret bool
	}{
		"nothing":            {ForServer("proxy", "http://127.0.0.1:8001", "", nil, ""), false},
		"a token":            {ForServer("proxy", "https://127.0.0.1:8001", "", nil, "secret"), true},
		"a plugin":           {through(plugin, "socks5://127.0.0.1:1080"), false},
		"the proxy's user":   {through(plugin, "socks5://me@127.0.0.1:1080"), false},
		"the proxy's secret": {through(plugin, "socks5://me:secret@127.0.0.1:1080"), true},
		"a key":              {through(&clientcmdapi.AuthInfo{ClientKeyData: []byte("k")}, "socks5://127.0.0.1:1080"), true},
		"a file of a key":    {through(&clientcmdapi.AuthInfo{ClientKey: "/k"}, "socks5://127.0.0.1:1080"), false},
		"a password":         {through(&clientcmdapi.AuthInfo{Username: "me", Password: "secret"}, ""), true},
	} {
		for _, mode := range []os.FileMode{0o644, 0o640, 0o600} {
			path := write(t, users)
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			link := filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(path, link); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{path, link} {
				a, err := Add(name, c.e)
				if refuse := c.secret && mode != 0o600; (err != nil) != refuse || refuse && !strings.Contains(err.Error(), "chmod 600") {
					t.Errorf("%s, mode %v: %v, want refused %v", what, mode, err, refuse)
				}
				if err == nil {
					remove(t, a)
				}
			}
			if now, err := os.ReadFile(path); err != nil || string(now) != users {
				t.Errorf("%s: the file is now\n%s%v", what, now, err)
			}
		}
	}
}

// replace changes the file as a text.
func replace(t *testing.T, path, pattern, by string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := regexp.MustCompile(pattern).ReplaceAll(data, []byte(by))
	if bytes.Equal(data, changed) {
		t.Fatalf("%s is not in\n%s", pattern, data)
	}
	if err := os.WriteFile(path, changed, 0o640); err != nil {
		t.Fatal(err)
	}
}

// endedProcess returns the number of a process that has run.
func endedProcess(t *testing.T) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
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
// It observes SOCKS-09 of docs/requirements.md.
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
// It observes SOCKS-06 of docs/requirements.md.
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
