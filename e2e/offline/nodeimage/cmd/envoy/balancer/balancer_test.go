// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/template"
	"time"
)

// templates are read from kind's own source, so the test also covers what its next version
// writes.
func templates(t *testing.T) map[string]string {
	t.Helper()
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kind")
	list.Dir = "../../../../../.." // the repository's root, whose module pins kind
	dir, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	source, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "pkg/cluster/internal/loadbalancer/config.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(source, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if value, ok := spec.Values[0].(*ast.BasicLit); ok {
				if found[spec.Names[0].Name], err = strconv.Unquote(value.Value); err != nil {
					t.Fatal(err)
				}
			}
		}
		return true
	})
	return found
}

// files are the three files as kind writes them.
type files struct {
	dir       string
	templates map[string]string
}

func newFiles(t *testing.T) files {
	t.Helper()
	f := files{dir: t.TempDir(), templates: templates(t)}
	f.replace(t, "envoy.yaml", fmt.Sprintf(f.templates["DynamicFilesystemConfigTemplate"], "c", "n", f.path("cds.yaml"), f.path("lds.yaml")))
	f.replace(t, "cds.yaml", "resources: []")
	f.replace(t, "lds.yaml", "resources: []")
	return f
}

func (f files) path(name string) string { return filepath.Join(f.dir, name) }

func (f files) replace(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(f.path(name+".tmp"), []byte(text), 0o644), os.Rename(f.path(name+".tmp"), f.path(name))); err != nil {
		t.Fatal(err)
	}
}

// configure does what kind's action does once the nodes are known.
func (f files) configure(t *testing.T, port int, servers map[string]string) {
	t.Helper()
	for file, name := range map[string]string{"cds.yaml": "ProxyCDSConfigTemplate", "lds.yaml": "ProxyLDSConfigTemplate"} {
		var text bytes.Buffer
		tmpl := template.Must(template.New(name).Funcs(template.FuncMap{"hostPort": func(a string) (map[string]string, error) {
			host, port, err := net.SplitHostPort(a)
			return map[string]string{"host": host, "port": port}, err
		}}).Parse(f.templates[name]))
		if err := tmpl.Execute(&text, map[string]any{"ControlPlanePort": port, "BackendServers": servers, "IPv6": false}); err != nil {
			t.Fatal(err)
		}
		f.replace(t, file, text.String())
	}
}

func TestReadsWhatKindWrites(t *testing.T) {
	f := newFiles(t)
	cds, lds, err := paths(f.path("envoy.yaml"))
	if err != nil || cds != f.path("cds.yaml") || lds != f.path("lds.yaml") {
		t.Fatalf("%s, %s, %v", cds, lds, err)
	}
	if empty, err := load(cds, lds); err != nil || empty.Listen != "" || len(empty.Servers) != 0 {
		t.Errorf("before kind has written anything: %+v, %v", empty, err)
	}
	f.configure(t, 6443, map[string]string{"a": "node-a:6443", "b": "node-b:6443"})
	got, err := load(cds, lds)
	want := Config{
		Listen: "0.0.0.0:6443", Servers: []string{"node-a:6443", "node-b:6443"}, HealthPath: "/healthz", Interval: 2 * time.Second, Timeout: 3 * time.Second,
		UnhealthyThreshold: 2, HealthyThreshold: 1, ConnectTimeout: 250 * time.Millisecond,
	}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v\n got %+v\nwant %+v", err, got, want)
	}
}

func TestBadFiles(t *testing.T) {
	f := newFiles(t)
	if err := Run(t.Context(), f.path("absent.yaml"), log.New(io.Discard, "", 0)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no bootstrap file: %v", err)
	}
	f.replace(t, "envoy.yaml", "admin: {}")
	if err := Run(t.Context(), f.path("envoy.yaml"), log.New(io.Discard, "", 0)); err == nil {
		t.Error("a bootstrap file that names no files: no error")
	}
	f.replace(t, "cds.yaml", "resources:\n- connect_timeout: soon")
	if _, err := load(f.path("cds.yaml"), f.path("lds.yaml")); err == nil || !strings.Contains(err.Error(), "cds.yaml") {
		t.Errorf("a time that is none: %v", err)
	}
}

// apiServer is a server with TLS that tells its name, and whose health can be switched.
func apiServer(t *testing.T, name string) (address string, sick *sync.Map) {
	t.Helper()
	sick = &sync.Map{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, is := sick.Load("sick"); is && r.URL.Path == "/healthz" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, name)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), sick
}

// ask opens a connection of its own to the balancer.
func ask(ctx context.Context, port int) (string, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true
	transport.TLSClientConfig.InsecureSkipVerify = true
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/", port), nil)
	if err != nil {
		return "", err
	}
	answer, err := (&http.Client{Transport: transport, Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}

// answers collects who answers eight connections.
func answers(t *testing.T, port int) []string {
	t.Helper()
	var names []string
	for range 8 {
		name, err := ask(t.Context(), port)
		if err != nil {
			name = "nobody"
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func until(t *testing.T, what string, port int, want ...string) {
	t.Helper()
	var got []string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if got = answers(t, port); slices.Equal(got, want) {
			return
		}
	}
	t.Fatalf("%s: %v answer, want %v", what, got, want)
}

// freePort is below the range from which the kernel picks ports, so that none is taken before its server has started.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 15000 + rand.IntN(17000)
		if listener, err := net.Listen("tcp", net.JoinHostPort("0.0.0.0", strconv.Itoa(port))); err == nil {
			_ = listener.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func TestBalances(t *testing.T) {
	f := newFiles(t)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- Run(ctx, f.path("envoy.yaml"), log.New(t.Output(), "", 0)) }()
	a, sick := apiServer(t, "a")
	b, _ := apiServer(t, "b")
	port := freePort(t)

	f.configure(t, port, map[string]string{"a": a})
	until(t, "one server", port, "a")
	f.configure(t, port, map[string]string{"a": a, "b": b, "gone": fmt.Sprintf("127.0.0.1:%d", freePort(t))})
	until(t, "two servers and one that is down", port, "a", "b")
	sick.Store("sick", true)
	until(t, "one server is sick", port, "b")
	sick.Delete("sick")
	until(t, "it is well again", port, "a", "b")
	f.replace(t, "cds.yaml", "resources: {")
	time.Sleep(2 * reread) // nothing may change
	until(t, "a file that is no YAML changes nothing", port, "a", "b")
	f.configure(t, port, map[string]string{"b": b})
	until(t, "one server is removed", port, "b")

	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if name, err := ask(t.Context(), port); err == nil {
		t.Errorf("%s answers after the end", name)
	}
}

// Kind may write the listener file before the port is free, and does not retry.
func TestPortTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	port := taken.Addr().(*net.TCPAddr).Port
	f := newFiles(t)
	a, _ := apiServer(t, "a")
	f.configure(t, port, map[string]string{"a": a})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, f.path("envoy.yaml"), log.New(t.Output(), "", 0)) }()
	time.Sleep(2 * reread) // nothing may change
	_ = taken.Close()
	until(t, "the port is free now", port, "a")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
