// SPDX-License-Identifier: Apache-2.0

package version

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/components"
)

// cluster is an API server of a version with a kubelet of another, and a server and an agent of one release of upstream.
func cluster(t *testing.T, server, kubelet string) (kubeconfig string) {
	t.Helper()
	return clusterOf(t, server, kubelet, "example/proxy-agent:v7", "example/proxy-server:v7")
}

// clusterOf has Pods with these images, whose names are their programs.
func clusterOf(t *testing.T, server, kubelet string, images ...string) (kubeconfig string) {
	t.Helper()
	var pods []string
	for i, image := range images {
		name, _ := v1alpha1.ImageName(image)
		pods = append(pods, fmt.Sprintf(`{"metadata":{"name":"p%d","namespace":"kube-system"},"spec":{"containers":[{"name":"a","image":%q,"command":["/%s"]}]}}`, i, image, name))
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body := `{"items":[]}`
		switch r.URL.Path {
		case "/version":
			body = `{"major":"1","minor":"x","gitVersion":"` + server + `"}`
		case "/api/v1/nodes":
			body = `{"items":[{"metadata":{"name":"n1"},"status":{"nodeInfo":{"kubeletVersion":"` + kubelet + `"}}}]}`
		case "/api/v1/namespaces/kube-system/pods":
			body = `{"items":[` + strings.Join(pods, ",") + `]}`
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(api.Close)
	file := filepath.Join(t.TempDir(), "config")
	config := `{"apiVersion":"v1","kind":"Config","current-context":"prod","contexts":[{"name":"prod","context":{"cluster":"c","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":"` + api.URL + `"}}],"users":[{"name":"u","user":{}}]}`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	cmd := NewCommand(streams)
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// fails runs the command, which must end with an error, and returns it with the output.
func fails(t *testing.T, args ...string) (string, error) {
	t.Helper()
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	cmd := NewCommand(streams)
	cmd.SetArgs(args)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err := cmd.ExecuteContext(t.Context())
	if err == nil {
		t.Errorf("%v: no error", args)
		err = errors.New("")
	}
	return out.String(), err
}

// TestSkew proves that versions that do not fit together are reported with the check that has more, for people and for programs, and that nothing
// is reported of those that do.
func TestSkew(t *testing.T) {
	const message = "Node n1: its kubelet is v1.31.0, the API server v1.36.3"
	old := cluster(t, "v1.36.3", "v1.31.0")
	text := run(t, "--kubeconfig", old)
	for _, want := range []string{"fairlead ", "Cluster prod: Kubernetes v1.36.3", "konnectivity-agent: example/proxy-agent:v7", "! " + message + " (FL-API-003)", "fix: "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	var shown struct {
		Components map[string]string
		Cluster    *inCluster
	}
	if err := json.Unmarshal([]byte(run(t, "--kubeconfig", old, "-o", "json")), &shown); err != nil {
		t.Fatal(err)
	}
	if c := shown.Cluster; c == nil || c.Kubernetes != "v1.36.3" || len(c.Skew) != 1 || c.Skew[0].Message != message || c.Skew[0].Check != "FL-API-003" || c.Unknown != nil {
		t.Errorf("got %+v", shown.Cluster)
	}
	if len(shown.Components) != len(components.Components()) {
		t.Errorf("components %v", shown.Components)
	}
	if text := run(t, "--kubeconfig", cluster(t, "v1.36.3", "v1.36.3")); strings.Contains(text, "!") || strings.Contains(text, "?") {
		t.Errorf("of versions that fit together:\n%s", text)
	}
}

// TestWithoutCluster proves that --client looks at no cluster, and that a kubeconfig without a context is no error.
func TestWithoutCluster(t *testing.T) {
	if text := run(t, "--client", "--kubeconfig", cluster(t, "v1.36.3", "v1.31.0")); strings.Contains(text, "Cluster") || !strings.Contains(text, "fairlead ") {
		t.Errorf("--client:\n%s", text)
	}
	if text := run(t, "--kubeconfig", filepath.Join(t.TempDir(), "none")); strings.Contains(text, "Cluster") || !strings.Contains(text, "fairlead ") {
		t.Errorf("without a context:\n%s", text)
	}
}

// TestRelease proves that Fairlead's programs in the cluster are compared with this program, that the fix is to upgrade the older side, and that
// what cannot be compared is unknown: an image without a version, and a tunnel of which one end is not visible.
func TestRelease(t *testing.T) {
	const server, agent = "x/konnectivity-server:", "x/konnectivity-agent:"
	for name, tc := range map[string]struct {
		images      []string
		want, never []string
	}{
		"same":        {[]string{server + v1alpha1.ImageTag, agent + v1alpha1.ImageTag}, nil, []string{"!", "?"}},
		"newer":       {[]string{server + "v99.0.0", agent + "v99.0.0"}, []string{"! konnectivity-server is of release v99.0.0, this program of " + v1alpha1.ImageTag, "fix: install fairlead v99.0.0"}, []string{"?"}},
		"older agent": {[]string{server + v1alpha1.ImageTag, agent + "v0.0.1"}, []string{"! konnectivity-agent is of release v0.0.1, this program of " + v1alpha1.ImageTag, "fix: fairlead install", "(FL-KON-032)"}, []string{"?"}},
		"no version":  {[]string{server + "latest", agent + "latest"}, []string{"? the release of konnectivity-agent: image x/konnectivity-agent:latest has no version in its tag"}, []string{"!"}},
		"no server":   {[]string{agent + v1alpha1.ImageTag}, []string{"(FL-KON-032): no server is visible"}, []string{"!"}},
		"no tunnel":   {nil, nil, []string{"!", "?"}},
	} {
		text := run(t, "--kubeconfig", clusterOf(t, "v1.36.3", "v1.36.3", tc.images...))
		for _, want := range tc.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", name, want, text)
			}
		}
		for _, never := range tc.never {
			if strings.Contains(text, "  "+never+" ") {
				t.Errorf("%s: %q in\n%s", name, never, text)
			}
		}
	}
}

// TestWrongCluster proves that a cluster that was chosen and cannot be found is an error, after this program's version, and that a kubeconfig
// whose current context is not set is none.
func TestWrongCluster(t *testing.T) {
	good := cluster(t, "v1.36.3", "v1.36.3")
	data, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for want, args := range map[string][]string{
		`no context "typo"`:             {"--kubeconfig", good, "--context", "typo"},
		`no context "old"`:              {"--kubeconfig", file(strings.Replace(string(data), `"current-context":"prod"`, `"current-context":"old"`, 1))},
		"read kubeconfig":               {"--kubeconfig", file("{")},
		"no such file":                  {"--kubeconfig", filepath.Join(t.TempDir(), "none"), "--context", "prod"},
		"which the kubeconfig does not": {"--kubeconfig", file(strings.Replace(string(data), `"name":"c","cluster"`, `"name":"d","cluster"`, 1))},
	} {
		if text, err := fails(t, args...); !strings.Contains(err.Error(), want) || !strings.HasPrefix(text, "fairlead ") || strings.Contains(text, "Cluster") {
			t.Errorf("%v: %v, want %q, after\n%s", args, err, want, text)
		}
	}
	if text := run(t, "--kubeconfig", file(strings.Replace(string(data), `"current-context":"prod",`, "", 1))); strings.Contains(text, "Cluster") {
		t.Errorf("without a current context:\n%s", text)
	}
}
