// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/scheduler"
)

// TestStartRefuses: the program rejects settings that kube-scheduler would ignore or apply differently than written.
func TestStartRefuses(t *testing.T) {
	const own = "plugins: {multiPoint: {enabled: [{name: TunnelReach}]}}"
	for name, tc := range map[string]struct{ profile, field, want string }{
		"absent plugin":     {"{schedulerName: a, pluginConfig: [{name: TunnelReach, args: {}}]}", "profiles[0].pluginConfig[0].name", "enable it under plugins, or remove them"},
		"unknown argument":  {"{schedulerName: a, " + own + ", pluginConfig: [{name: TunnelReach, args: {modus: Prefer}}]}", "profiles[0].pluginConfig[0].args", `unknown field "modus"`},
		"value":             {"{schedulerName: a, " + own + ", pluginConfig: [{name: TunnelReach, args: {mode: Maybe}}]}", "profiles[0].pluginConfig[0].args.mode", `"Prefer", "Require"`},
		"weight":            {"{schedulerName: a, plugins: {score: {enabled: [{name: ImageLocality, weight: -1}]}}}", "profiles[0].plugins.score.enabled[0].weight", "at least 1"},
		"resource's weight": {"{schedulerName: a, pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 101}]}}}]}", "profiles[0].pluginConfig[0].args.scoringStrategy", "not in valid range"},
		"queue sorts":       {"{schedulerName: a}, {schedulerName: b, plugins: {queueSort: {disabled: [{name: '*'}], enabled: [{name: Other}]}}}", "profiles[1].plugins.queueSort", "must be the same for all profiles"},
		"unknown field":     {"{schedulerName: a, plugin: {}}", "profiles[0]", `unknown field`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startWith(t, "", "profiles: ["+tc.profile+"]")
			if code := p.ExitCode(t, patience); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			for _, want := range []string{tc.field, tc.want} {
				if output := strings.ReplaceAll(p.Output(), `\"`, `"`); !strings.Contains(output, want) { // the log quotes
					t.Errorf("%q is missing in\n%s", want, output)
				}
			}
		})
	}
}

// TestDefaultLease: a scheduler of another name does not wait for the Lease of the default scheduler, which a configuration with
// leaderElect alone names by default (SCHED-35). With the default scheduler's profile, or a Lease of its own, it goes on to the API server.
func TestDefaultLease(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		election, profile string
		flags             []string
		refused           bool
	}{
		"leaderElect alone":  {"{leaderElect: true}", "a", nil, true},
		"by a flag":          {"{leaderElect: false}", "a", []string{"--leader-elect=true"}, true},
		"name by a flag":     {"{leaderElect: true, resourceName: own}", "a", []string{"--leader-elect-resource-name=kube-scheduler"}, true},
		"own name":           {"{leaderElect: true, resourceName: own}", "a", nil, false},
		"other namespace":    {"{leaderElect: true, resourceNamespace: other}", "a", nil, false},
		"default profile":    {"{leaderElect: true}", "default-scheduler", nil, false},
		"no leader election": {"{leaderElect: false}", "a", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := writeConfig(t, dir, "http://127.0.0.1:"+daemontest.Ports(t, 1)[0], "profiles: [{schedulerName: "+tc.profile+"}]")
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Replace(string(data), "{leaderElect: false}", tc.election, 1)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			p := daemontest.Start(t, nil, binary(t), append(tc.flags, "--config="+path, "--bind-address=127.0.0.1",
				"--secure-port="+daemontest.Ports(t, 1)[0], "--cert-dir="+dir)...)
			if tc.refused {
				if code := p.ExitCode(t, patience); code != 1 || !strings.Contains(p.Output(), "set leaderElection.resourceName to a name of this scheduler's own") {
					t.Errorf("exit code %d:\n%s", code, p.Output())
				}
				return
			}
			daemontest.Eventually(t, patience, func() error {
				if !strings.Contains(p.Output(), "Could not read the API server's version") {
					return errors.New(p.Output())
				}
				return nil
			})
		})
	}
}

// TestOldConfiguration: a configuration of an older version is refused with the version to write (OLD-01).
func TestOldConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := writeConfig(t, dir, "http://127.0.0.1:1", "profiles: [{schedulerName: a}]")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), "config.k8s.io/v1\n", "config.k8s.io/v1beta2\n", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := daemontest.Start(t, nil, binary(t), "--config="+path, "--secure-port=0", "--cert-dir="+dir)
	if code := p.ExitCode(t, patience); code != 1 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"kubescheduler.config.k8s.io/v1beta2", "write apiVersion: kubescheduler.config.k8s.io/v1,"} {
		if !strings.Contains(p.Output(), want) {
			t.Errorf("%q is missing in\n%s", want, p.Output())
		}
	}
}

// TestOldAPIServer: a scheduler that is newer than the API server does not start.
func TestOldAPIServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/version" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"major": "1", "minor": "30", "gitVersion": "v1.30.2"}`))
	}))
	t.Cleanup(server.Close)
	p := startWith(t, server.URL, "profiles: [{schedulerName: a}]")
	if code := p.ExitCode(t, patience); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	for _, want := range []string{"newer than the API server", "v1.30.2", "upgrade the control plane first"} {
		if !strings.Contains(p.Output(), want) {
			t.Errorf("%q is missing in\n%s", want, p.Output())
		}
	}
}

// TestOwnPlugin: a custom program adds a plugin, which its profiles enable.
func TestOwnPlugin(t *testing.T) {
	made := errors.New("the plugin is made")
	cmd := scheduler.NewCommand(app.WithPlugin("Mine", func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return nil, made }))
	config := writeConfig(t, t.TempDir(), "http://127.0.0.1:"+daemontest.Ports(t, 1)[0], "profiles: [{schedulerName: a, plugins: {multiPoint: {enabled: [{name: Mine}]}}}]")
	cmd.SetArgs([]string{"--config=" + config, "--secure-port=0", "--authentication-skip-lookup"})
	cmd.SetErr(io.Discard)
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), made.Error()) { // it is not wrapped
		t.Errorf("%v, want %v", err, made)
	}
}

// startWith starts the program with a configuration for an API server; "" is one that does not answer.
func startWith(t *testing.T, url, profiles string) *daemontest.Process {
	t.Helper()
	if url == "" {
		url = "http://127.0.0.1:" + daemontest.Ports(t, 1)[0]
	}
	dir := t.TempDir()
	return daemontest.Start(t, nil, binary(t), "--config="+writeConfig(t, dir, url, profiles), "--bind-address=127.0.0.1",
		"--secure-port="+daemontest.Ports(t, 1)[0], "--cert-dir="+dir)
}

func writeConfig(t *testing.T, dir, url, profiles string) (config string) {
	t.Helper()
	kubeconfig, config := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "config.yaml")
	for path, content := range map[string]string{
		kubeconfig: "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: '" + url + "'}}]\n" +
			"contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {token: a}}]\n",
		config: "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n" +
			"leaderElection: {leaderElect: false}\nclientConnection: {kubeconfig: " + kubeconfig + "}\n" + profiles + "\n",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return config
}
