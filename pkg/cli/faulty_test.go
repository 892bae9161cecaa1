// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/cli/version"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// execute runs a command line as the program does.
func execute(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	var text bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &text, ErrOut: &text}
	code = run(NewCommand(streams), args, streams)
	return text.String(), code
}

// edited writes a changed copy of a kubeconfig.
func edited(t *testing.T, file string, edit func(*clientcmdapi.Config)) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	edit(config)
	out := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// hanging is a proxy in front of an API server that never answers requests of one path, after it has passed on as many as given.
func hanging(t *testing.T, kubeconfig, path string, pass int) string {
	t.Helper()
	var mu sync.Mutex
	end := make(chan struct{})
	behind := daemontest.Proxy(t, kubeconfig, func(_ http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, path) {
			return true
		}
		mu.Lock()
		pass--
		hang := pass < 0
		mu.Unlock()
		if hang {
			select {
			case <-end:
			case <-r.Context().Done():
			}
		}
		return !hang
	})
	t.Cleanup(func() { close(end) }) // before the proxy is closed, which waits for its requests
	return behind
}

// result is one check of "fairlead check -o json".
type result struct{ ID, Status, Reason string }

func checks(t *testing.T, out string) map[string]result {
	t.Helper()
	var report struct{ Checks []result }
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&report); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	all := map[string]result{}
	for _, r := range report.Checks {
		all[r.ID] = r
	}
	return all
}

func wantOutput(t *testing.T, out string, code, wantCode int, want ...string) {
	t.Helper()
	if code != wantCode {
		t.Errorf("exit code %d, want %d", code, wantCode)
	}
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Errorf("no %q", w)
		}
	}
	if t.Failed() {
		t.Logf("output:\n%s", out)
	}
}

// TestFaultyAPIServer proves what each command that looks at a cluster says of a real API server of which a part never answers, and of a user
// who may read nothing: which part it could not find out, in time, with what it could still find out, and with an exit code that fits.
func TestFaultyAPIServer(t *testing.T) {
	file := daemontest.SharedControlPlane(t).Kubeconfig // before HOME is another: programs come from its cache
	t.Setenv("HOME", t.TempDir())
	short := version.Limit
	version.Limit = 12 * time.Second // what answers must be read on a busy machine, too
	t.Cleanup(func() { version.Limit = short })
	guest := edited(t, file, func(c *clientcmdapi.Config) {
		c.AuthInfos["test"].Impersonate, c.AuthInfos["test"].ImpersonateGroups = "guest", []string{"system:authenticated"}
	})
	t.Run("group", func(t *testing.T) { // the API server ends after it
		t.Run("hangs", func(t *testing.T) { testHangs(t, file) })
		t.Run("guest", func(t *testing.T) { testGuest(t, guest) })
	})
}

func testHangs(t *testing.T, file string) {
	// Check and others ask for the version twice to see whether the API server answers.
	for _, c := range []struct{ path, id, unknown, missing string }{
		{"/version", "FL-API-003", "version: ", ""},
		{"/api/v1/nodes", "FL-API-011", "nodes: ", "objects/nodes.json"},
		{"/api/v1/namespaces/kube-system/pods", "FL-KON-001", "programs: ", "programs.json"},
		{"/apis/coordination.k8s.io/v1/namespaces", "FL-API-010", "", "objects/leases.json"},
	} {
		pass := 0
		if c.path == "/version" {
			pass = 2
		}
		at := func(t *testing.T) string {
			t.Helper()
			if c.path != "/api/v1/nodes" {
				testutil.Full(t, "waits for time limits; the main path has another request that hangs")
			}
			t.Parallel()
			return hanging(t, file, c.path, pass)
		}
		t.Run("check "+c.path, func(t *testing.T) {
			out, code := execute(t, "check", "--kubeconfig", at(t), "--timeout", "10s", "-o", "json")
			wantOutput(t, out, code, 0)
			got := checks(t, out)
			if r := got[c.id]; r.Status != "unknown" || !strings.Contains(r.Reason, "no answer in time") {
				t.Errorf("%s is %+v", c.id, r)
			}
			if r := got["FL-API-002"]; r.Status != "ok" {
				t.Errorf("what answers is %+v", r)
			}
		})
		t.Run("status "+c.path, func(t *testing.T) {
			out, code := execute(t, "status", "--kubeconfig", at(t))
			switch c.unknown {
			case "": // no second scheduler needs the Lease
				wantOutput(t, out, code, 0, "test: ready")
			case "version: ":
				wantOutput(t, out, code, 0, c.unknown, "no answer in time", "version unknown")
			default:
				wantOutput(t, out, code, 3, "test: unknown", c.unknown, "no answer in time", "it is unknown whether the cluster is healthy: ")
			}
		})
		t.Run("version "+c.path, func(t *testing.T) {
			out, code := execute(t, "version", "--kubeconfig", at(t))
			if c.unknown == "" {
				wantOutput(t, out, code, 0, "Cluster test: Kubernetes v1")
				return
			}
			wantOutput(t, out, code, 0, "fairlead ", "Cluster test: Kubernetes ", "  ? ", c.unknown, "no answer in time")
		})
		if c.missing == "" {
			continue
		}
		t.Run("sysdump "+c.path, func(t *testing.T) {
			out, code := execute(t, "sysdump", "--kubeconfig", at(t), "--timeout", "20s", "-o", filepath.Join(t.TempDir(), "x.tar.gz"))
			wantOutput(t, out, code, 0, "Wrote ", "without "+c.missing+": ", "no answer in time")
		})
	}
	t.Run("check", func(t *testing.T) {
		testutil.Full(t, "waits for time limits")
		t.Parallel()
		out, code := execute(t, "check", "--kubeconfig", hanging(t, file, "/", 0), "--timeout", "8s")
		wantOutput(t, out, code, 1, "FL-API-001", "no answer")
	})
	t.Run("status", func(t *testing.T) {
		testutil.Full(t, "waits for time limits")
		t.Parallel()
		out, code := execute(t, "status", "--kubeconfig", hanging(t, file, "/", 0))
		wantOutput(t, out, code, 1, "test: not healthy", "no answer")
	})
	t.Run("version", func(t *testing.T) {
		testutil.Full(t, "waits for time limits")
		t.Parallel()
		out, code := execute(t, "version", "--kubeconfig", hanging(t, file, "/", 0))
		wantOutput(t, out, code, 0, "fairlead ", "Cluster test: ", "no answer")
	})
	t.Run("sysdump", func(t *testing.T) {
		testutil.Full(t, "waits for time limits")
		t.Parallel()
		out, code := execute(t, "sysdump", "--kubeconfig", hanging(t, file, "/", 0), "--timeout", "20s", "-o", filepath.Join(t.TempDir(), "x.tar.gz"))
		wantOutput(t, out, code, 0, "Wrote ", "without objects/nodes.json: ")
	})
	t.Run("top", func(t *testing.T) {
		testutil.Full(t, "waits for time limits")
		t.Parallel()
		out, code := execute(t, "top", "tunnels", "--kubeconfig", hanging(t, file, "/apis/tunnel.fairlead.dev", 0))
		wantOutput(t, out, code, 1, "list tunnel", "no answer within 15s")
	})
}

func testGuest(t *testing.T, guest string) {
	t.Run("check", func(t *testing.T) {
		t.Parallel()
		out, code := execute(t, "check", "--kubeconfig", guest, "-o", "json")
		wantOutput(t, out, code, 0, "forbidden")
		got := checks(t, out)
		for id, want := range map[string]string{"FL-API-001": "ok", "FL-API-009": "warning", "FL-API-011": "unknown", "FL-KON-001": "unknown"} {
			if got[id].Status != want {
				t.Errorf("%s: %+v, want %s", id, got[id], want)
			}
		}
		if _, code := execute(t, "check", "--kubeconfig", guest, "--fail-on", "unknown"); code != 1 {
			t.Errorf("--fail-on unknown: exit code %d", code)
		}
	})
	t.Run("status", func(t *testing.T) {
		t.Parallel()
		out, code := execute(t, "status", "--kubeconfig", guest)
		wantOutput(t, out, code, 3, "test: unknown, Kubernetes v1", "Nodes         unknown", "Tunnel        unknown", "Scheduler     unknown", "Pods waiting  unknown", "forbidden")
		out, code = execute(t, "status", "--kubeconfig", guest, "-o", "json")
		var shown struct {
			Overview struct {
				State   string
				Healthy bool
				Nodes   any
				Tunnel  map[string]any
				Unknown []string
			}
		}
		if err := json.NewDecoder(strings.NewReader(out)).Decode(&shown); err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		if o := shown.Overview; code != 3 || o.State != "unknown" || o.Healthy || o.Nodes != nil || o.Tunnel["installed"] != nil || len(o.Unknown) < 3 {
			t.Errorf("exit code %d: %+v", code, shown)
		}
	})
	t.Run("version", func(t *testing.T) {
		t.Parallel()
		out, code := execute(t, "version", "--kubeconfig", guest)
		wantOutput(t, out, code, 0, "Cluster test: Kubernetes v1", "  ? nodes: ", "  ? programs: ", "forbidden")
	})
	t.Run("sysdump", func(t *testing.T) {
		t.Parallel()
		out, code := execute(t, "sysdump", "--kubeconfig", guest, "-o", filepath.Join(t.TempDir(), "x.tar.gz"))
		wantOutput(t, out, code, 0, "Wrote ", "without objects/nodes.json: ", "forbidden")
	})
	t.Run("top", func(t *testing.T) {
		t.Parallel()
		out, code := execute(t, "top", "tunnels", "--kubeconfig", guest)
		wantOutput(t, out, code, 1, "tunnelAPI.enabled: true")
	})
}
