// SPDX-License-Identifier: Apache-2.0

package sysdump_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/sysdump"
)

// TestNoCanaryIsCollected proves that an archive of a real API server's cluster has what support needs, and none of the secrets that are
// planted in Secrets, ConfigMaps, annotations, environments, arguments, messages, logs and metrics; and that it says what is missing.
func TestNoCanaryIsCollected(t *testing.T) {
	cp := daemontest.StartControlPlane(t)
	g := &garden{t: t, ctx: t.Context(), cp: cp}
	g.plantSecrets()
	g.plantWorkloads()
	g.plantPolicies()
	g.plantResources()
	g.plantSidecar()
	env := g.local()
	config, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	manifest, err := sysdump.Write(t.Context(), observe.Target{Config: config, Context: "test", Env: env, Bundle: &v1alpha1.Bundle{
		Scheduler: v1alpha1.Scheduler{Name: "of-the-bundle", ExtraArgs: []v1alpha1.Argument{{Name: "kubeconfig-token", Value: g.canary()}}}}, Limit: 8 * time.Second}, &out,
		sysdump.Options{MaxSize: 10 << 20, LogSize: 1 << 20, Agents: 5})
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, &out)
	if len(g.planted) < 60 {
		t.Errorf("only %d canaries", len(g.planted))
	}
	for name, text := range files {
		for _, c := range g.planted {
			if strings.Contains(text, c) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(c))) {
				t.Errorf("%s has %s", name, c)
			}
		}
	}
	for name, want := range map[string]string{
		"objects/pods.json": "example/proxy-agent:v1", "objects/nodes.json": `"n1"`, "objects/daemonsets.json": "konnectivity-agent", "objects/events.json": "mount failed",
		"objects/customresourcedefinitions.json": "tests.example.com", "objects/validatingwebhookconfigurations.json": "a.b.c", "check.json": "FL-API-001",
		"status.json": `"cluster": "test"`, "programs.json": "--mode=grpc", "config/kube-system_other-scheduler.json": "KubeSchedulerConfiguration",
		"logs/konnectivity-server.log": "I0101 ended", "metrics/konnectivity-server.txt": "ready_backend_connections", "manifest.json": `"missing"`,
		"config/bundle.json": `"of-the-bundle"`, "objects/bundles.json": `"second"`, "metrics/agent-0.txt": "open_server_connections",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s lacks %q:\n%.500s", name, want, files[name])
		}
	}
	for name, want := range map[string][]string{
		"programs.json": {"--proxy-server-host=tunnel", "--realm=[redacted]", "--site", "--upstream-auth=[redacted]", "--v=3", "/proxy-agent", "--egress-selector-config-file=/e.yaml"},
		"config/kube-system_other-scheduler.json": {`"Prices"`, `"other"`, "https://extender.example:8080/[redacted]", `"filter"`},
	} {
		for _, part := range want {
			if !strings.Contains(files[name], part) || !json.Valid([]byte(files[name])) {
				t.Errorf("%s lacks %q, or is no JSON:\n%s", name, part, files[name])
			}
		}
	}
	missing := ""
	for _, m := range manifest.Missing {
		missing += m.What + "\n"
	}
	if text := files["objects/events.json"]; !strings.Contains(text, "Node is not ready") || strings.Contains(text, "private") {
		t.Errorf("of namespace default, the events of nodes alone are expected:\n%s", text)
	}
	if _, ok := files["objects/tunnelpools.json"]; !ok || strings.Contains(missing, "tunnelpools") {
		t.Errorf("no list of TunnelPools:\n%s", missing)
	}
	if !strings.Contains(missing, "logs/kube-system_konnectivity-agent-1.log") || !strings.Contains(missing, "logs/kube-system_fairlead-operator-1.log") {
		t.Errorf("the log of a Pod without a kubelet is not among what is missing:\n%s", missing)
	}
	testWithoutRights(t, config)
	testHangingLog(t, config)
}

// testHangingLog proves that an archive is complete in time where a log hangs in the middle of a line: with the lines that came, with the other
// logs, and with what is missing and why.
func testHangingLog(t *testing.T, config *rest.Config) {
	t.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	const at = "2026-01-01T10:00:00.123456789+02:00 " // the node is not in UTC
	line := func(text string) []byte { return []byte(at + strings.ReplaceAll(text, "\n", "\n"+at) + "\n") }
	g := &garden{t: t}
	secrets := g.log()
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}} //nolint:gosec // a test's own
	end := make(chan struct{})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/konnectivity-agent-1/log"):
			_, _ = w.Write(append(line("one whole line"), at+"cut password"...))
			_ = http.NewResponseController(w).Flush()
			select {
			case <-end:
			case <-r.Context().Done():
			}
		case r.URL.Query().Get("container") == "kube-apiserver":
			_, _ = w.Write(line("a request of kube-apiserver"))
		case r.URL.Query().Get("container") == "tunnel":
			_, _ = w.Write(line("the server's line"))
		case strings.HasSuffix(r.URL.Path, "/log"):
			_, _ = w.Write(line("the operator's line\n" + secrets))
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { close(end); front.Close() })
	config = rest.CopyConfig(config)
	config.Host, config.TLSClientConfig = front.URL, rest.TLSClientConfig{}
	limited, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var out bytes.Buffer
	begin := time.Now()
	manifest, err := sysdump.Write(limited, observe.Target{Config: config, Context: "hangs", Limit: 8 * time.Second}, &out, sysdump.Options{MaxSize: 10 << 20, LogSize: 1 << 20, Agents: 5})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 80*time.Second {
		t.Errorf("it took %s", took)
	}
	files, missing := unpack(t, &out), fmt.Sprint(manifest.Missing)
	if text := files["logs/kube-system_konnectivity-agent-1.log"]; text != at+"one whole line\n" || !strings.Contains(missing, "konnectivity-agent-1.log its end: ") {
		t.Errorf("got %q, missing %s", text, missing)
	}
	if text := files["logs/kube-system_fairlead-operator-1.log"]; !strings.HasPrefix(text, at+"the operator's line\n") {
		t.Errorf("the other log is %q", text)
	}
	if text := files["logs/kube-system_kube-apiserver-cp1_tunnel.log"]; text != at+"the server's line\n" {
		t.Errorf("the log of a server beside kube-apiserver is %q", text)
	}
	for name, text := range files {
		if strings.Contains(text, "a request of kube-apiserver") {
			t.Errorf("%s is kube-apiserver's log", name)
		}
		for _, c := range g.planted {
			if strings.Contains(strings.ReplaceAll(text, "\n"+at, ""), c) {
				t.Errorf("%s has %s", name, c)
			}
		}
	}
}

// testWithoutRights proves that a user who may read almost nothing gets an archive that says so: what is forbidden is unknown, and nothing fails
// because of that.
func testWithoutRights(t *testing.T, config *rest.Config) {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "guest", Groups: []string{"system:authenticated"}}
	var out bytes.Buffer
	manifest, err := sysdump.Write(t.Context(), observe.Target{Config: config, Context: "guest", Limit: 8 * time.Second}, &out,
		sysdump.Options{MaxSize: 10 << 20, LogSize: 1 << 20, Agents: 5})
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Counts map[string]int
		Checks []struct{ ID, Status, Reason string }
	}
	if err := json.Unmarshal([]byte(unpack(t, &out)["check.json"]), &report); err != nil {
		t.Fatal(err)
	}
	if report.Counts["failed"] > 0 || report.Counts["unknown"] < 10 {
		t.Errorf("got %v", report.Counts)
	}
	for _, c := range report.Checks {
		if c.ID == "FL-API-009" && c.Status != "warning" || c.ID == "FL-API-011" && (c.Status != "unknown" || !strings.Contains(c.Reason, "forbidden")) {
			t.Errorf("got %+v", c)
		}
	}
	reasons := fmt.Sprint(manifest.Missing)
	if !strings.Contains(reasons, "objects/nodes.json") || !strings.Contains(reasons, "forbidden") {
		t.Errorf("got %s", reasons)
	}
}

// unpack reads the files of an archive, without the name of its directory.
func unpack(t *testing.T, in io.Reader) map[string]string {
	t.Helper()
	gz, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for reader := tar.NewReader(gz); ; {
		h, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(path.Clean(h.Name), "/")
		files[name] = string(data)
	}
}

// TestWithoutAPIServer proves that an archive is written without an API server, too, has what this machine knows, and says why the rest is missing;
// and that the limit of size holds.
func TestWithoutAPIServer(t *testing.T) {
	ports := daemontest.Ports(t, 1)
	config, err := clientcmd.NewDefaultClientConfig(*kubeconfig("https://127.0.0.1:" + ports[0]), nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "server.log")
	if err := os.WriteFile(log, bytes.Repeat([]byte("one line of a log\n"), 10000), 0o600); err != nil {
		t.Fatal(err)
	}
	env := &check.Env{Programs: func(context.Context) ([]check.Program, error) {
		return []check.Program{{Role: check.RoleServer, Name: "process konnectivity-server", Local: true, LogFile: log}, {Role: check.RoleAgent, Name: "process agent-0", Local: true, LogFile: log}}, nil
	}}
	var out bytes.Buffer
	manifest, err := sysdump.Write(t.Context(), observe.Target{Config: config, Context: "down", Env: env}, &out, sysdump.Options{MaxSize: 60 << 10, LogSize: 30 << 10, Agents: 5})
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, &out)
	total := 0
	for name, text := range files {
		if name != "manifest.json" {
			total += len(text)
		}
	}
	if total > 60<<10 {
		t.Errorf("%d bytes, more than the limit", total)
	}
	if text := files["logs/konnectivity-server.log"]; len(text) > 30<<10 || !strings.HasPrefix(text, "one line") || !strings.Contains(files["check.json"], "connection refused") {
		t.Errorf("log of %d bytes that begins with %.20q", len(text), text)
	}
	reasons, err := json.Marshal(manifest.Missing)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"objects/nodes.json", "the API server does not answer", "size limit"} {
		if !strings.Contains(string(reasons), want) {
			t.Errorf("no %q in %s", want, reasons)
		}
	}
}
