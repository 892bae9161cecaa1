// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
)

func kubeconfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const twoContexts = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: one, context: {cluster: c, user: u}}, {name: two, context: {cluster: c, user: u}}]
`

func run(t *testing.T, sources []check.EnvSource, args ...string) (out string, code int, text string) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	streams, _, stdout, _ := genericiooptions.NewTestIOStreams()
	cmd := NewCommand(streams, sources...)
	cmd.SetArgs(args)
	cmd.SetOut(&bytes.Buffer{})
	cmd.SetErr(&bytes.Buffer{})
	err := cmd.ExecuteContext(t.Context())
	if err == nil {
		return stdout.String(), 0, ""
	}
	var coded interface{ ExitCode() int }
	if !errors.As(err, &coded) {
		t.Fatalf("no exit code in %v", err)
	}
	return stdout.String(), coded.ExitCode(), err.Error()
}

func TestBadUsage(t *testing.T) {
	config := kubeconfig(t, twoContexts)
	tests := map[string]struct {
		args []string
		want string
	}{
		"unknown flag":       {[]string{"--nope"}, "unknown flag"},
		"regexp":             {[]string{"--only", "("}, "--only: error parsing regexp"},
		"nothing selected":   {[]string{"--only", "nothing"}, "no check matches"},
		"disruptive":         {[]string{"--only", "failover"}, "add --disruptive"},
		"lease":              {[]string{"--lease", "x"}, "must have the form namespace/name"},
		"stock lease":        {[]string{"--lease", "kube-system/kube-scheduler"}, "must not be the default scheduler's Lease"},
		"stock scheduler":    {[]string{"--scheduler-name", "default-scheduler"}, "must not be the default scheduler"},
		"empty scheduler":    {[]string{"--scheduler-name", ""}, "--scheduler-name: must not be empty"},
		"empty lease":        {[]string{"--lease="}, "--lease: must not be empty"},
		"bundle missing":     {[]string{"-f", "/nonexistent"}, "--filename: open /nonexistent"},
		"bundle broken":      {[]string{"-f", config}, ": cannot read the bundle"},
		"output":             {[]string{"-o", "yaml"}, "text, json, junit"},
		"loopback webhook":   {[]string{"--webhook-address", "127.0.0.1:8443"}, "other than loopback"},
		"webhook port":       {[]string{"--webhook-address", "192.0.2.1:http"}, "is not a port"},
		"negative timeout":   {[]string{"--timeout", "-1s"}, "must not be negative"},
		"no kubeconfig":      {nil, "no kubeconfig with a context found"},
		"kubeconfig missing": {[]string{"--kubeconfig", "/nonexistent"}, "no such file"},
		"kubeconfig broken":  {[]string{"--kubeconfig", kubeconfig(t, "{")}, "read kubeconfig"},
		"no such context":    {[]string{"--kubeconfig", config, "--context", "three"}, "--context takes one of: one, two"},
		"no current context": {[]string{"--kubeconfig", config}, "has no current context"},
		"empty name":         {[]string{"--kubeconfig", config, "--name", ""}, "use lower-case letters"},
		"name, no context":   {[]string{"--kubeconfig", config, "--name", "three"}, `no context "fairlead-three"`},
		"name and context":   {[]string{"--kubeconfig", config, "--name", "two", "--context", "two"}, "remove one of them"},
		"no program listens": {[]string{"--kubeconfig", config, "--context", "one"}, "connection refused"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, code, text := run(t, nil, tc.args...); code != 2 || !strings.Contains(text, tc.want) {
				t.Errorf("code %d, %q, want 2 and %q", code, text, tc.want)
			}
		})
	}
}

func TestList(t *testing.T) {
	out, code, _ := run(t, nil, "--list")
	for _, c := range check.All() {
		if code != 0 || !strings.Contains(out, c.ID) {
			t.Errorf("code %d, %s is not listed", code, c.ID)
		}
	}
}

func TestSourceIsAskedFirst(t *testing.T) {
	asked := ""
	source := func(_ context.Context, kubeconfig, kubeContext string) (*check.Env, error) {
		asked = kubeconfig + " " + kubeContext
		return nil, errors.New("mine, but broken")
	}
	if _, code, text := run(t, []check.EnvSource{source}, "--kubeconfig", "k", "--context", "c"); code != 2 || asked != "k c" || text != "mine, but broken" {
		t.Errorf("asked %q, code %d: %s", asked, code, text)
	}
}

// TestName proves that --name selects that cluster's context, not the current one.
func TestName(t *testing.T) {
	for _, args := range [][]string{{"--name", "b7"}, {"--name", "b7", "--context", "fairlead-b7"}} {
		asked := ""
		source := func(_ context.Context, _, kubeContext string) (*check.Env, error) {
			asked = kubeContext
			return nil, errors.New("enough")
		}
		if _, _, text := run(t, []check.EnvSource{source}, args...); asked != "fairlead-b7" {
			t.Errorf("%v: asked for context %q: %s", args, asked, text)
		}
	}
}

// TestExitCodes proves that a failed check gives 1 and is printed, and that the flags reach the Env.
// It observes OLD-08 of docs/requirements.md.
func TestExitCodes(t *testing.T) {
	ready := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			w.WriteHeader(ready)
		}
		_, _ = w.Write([]byte(`{"gitVersion":"v1.36.3"}`))
	}))
	defer server.Close()
	var env *check.Env
	source := func(context.Context, string, string) (*check.Env, error) {
		env = &check.Env{Config: &rest.Config{Host: server.URL}}
		return env, nil
	}
	sources := []check.EnvSource{source}
	args := []string{"--only", "api-server", "--scheduler-name", "other", "--lease", "a/b", "--webhook-address", "192.0.2.9:8443", "--image", "i", "--pause-image", "p", "--server-metrics-url", server.URL}
	out, code, text := run(t, sources, args...)
	if code != 0 || !strings.Contains(out, "✓ API server is ready") {
		t.Errorf("code %d %s: %s", code, text, out)
	}
	if env.SchedulerName != "other" || env.Lease.String() != "a/b" || env.HostIP != "192.0.2.9" || env.HostPort != 8443 || env.Probe.Image != "i" || env.Probe.PauseImage != "p" || env.ServerMetrics == nil {
		t.Errorf("flags did not reach the Env: %+v", env)
	}
	ready = http.StatusInternalServerError
	if out, code, text := run(t, sources, "--only", "api-server", "-o", "json"); code != 1 || text != "1 of 1 checks failed" || !strings.Contains(out, `"status": "failed"`) {
		t.Errorf("code %d %q: %s", code, text, out)
	}
	// Without Parts the disruptive check is skipped; asked for by name, that is no success.
	if out, code, _ := run(t, sources, "--only", "scheduler-failover", "--disruptive"); code != 1 || !strings.Contains(out, "skipped: killing the leader") {
		t.Errorf("code %d: %s", code, out)
	}
}

// TestWhereNamesComeFrom proves that flags win over the bundle file, and the file over what a source says, even where they give the default.
func TestWhereNamesComeFrom(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bundle.yaml")
	if err := os.WriteFile(file, []byte(bundletest.Old("scheduler: {name: second, profiles: [{schedulerName: batch}]}")), 0o600); err != nil {
		t.Fatal(err)
	}
	source := func(context.Context, string, string) (*check.Env, error) {
		return &check.Env{Config: &rest.Config{Host: "http://127.0.0.1:1"}, SchedulerName: "sources", Lease: types.NamespacedName{Namespace: "s", Name: "sources"}}, nil
	}
	tests := map[string]struct {
		file, name, lease   string
		sources             []check.EnvSource
		wantName, wantLease string
	}{
		"nothing said":                {wantName: "my-scheduler", wantLease: "kube-system/my-scheduler"},
		"file":                        {file: file, wantName: "batch", wantLease: "kube-system/second"},
		"file and flags":              {file: file, name: "my-scheduler", lease: "a/b", wantName: "my-scheduler", wantLease: "a/b"},
		"source":                      {sources: []check.EnvSource{source}, wantName: "sources", wantLease: "s/sources"},
		"source and file":             {file: file, sources: []check.EnvSource{source}, wantName: "batch", wantLease: "kube-system/second"},
		"source and the default name": {name: "my-scheduler", lease: "kube-system/my-scheduler", sources: []check.EnvSource{source}, wantName: "my-scheduler", wantLease: "kube-system/my-scheduler"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := NewOptions(genericiooptions.NewTestIOStreamsDiscard(), tc.sources...)
			o.Kubeconfig, o.Context = kubeconfig(t, twoContexts), "one"
			o.Filename, o.SchedulerName, o.Lease = tc.file, tc.name, tc.lease
			if err := errors.Join(o.Complete(), o.Validate()); err != nil {
				t.Fatal(err)
			}
			env, err := o.env(t.Context())
			if err != nil || env.SchedulerName != tc.wantName || env.Lease.String() != tc.wantLease {
				t.Errorf("got %s, %s, %v", env.SchedulerName, env.Lease, err)
			}
		})
	}
}

// TestOwnClustersBundle: for a cluster whose bundle is known, another --filename is
// refused, with the field; the same one is not.
func TestOwnClustersBundle(t *testing.T) {
	own := v1alpha1.New()
	own.Konnectivity.AgentPort = 9132
	source := func(context.Context, string, string) (*check.Env, error) {
		return &check.Env{Config: &rest.Config{Host: "http://127.0.0.1:1"}, Cluster: "fairlead-dev", Bundle: own}, nil
	}
	for text, want := range map[string]string{
		"konnectivity: {agentPort: 9132}\n":                                    "",
		"konnectivity: {agentPort: 9133}\n":                                    ": spec.konnectivity.serverAddresses[0].port is 9133 there, but 9132 in the bundle of cluster fairlead-dev",
		"konnectivity: {agentPort: 9132}\nscheduler: {nodeSelector: {a: b}}\n": `scheduler.nodeSelector is {"a":"b"} there, but not set`,
	} {
		o := NewOptions(genericiooptions.NewTestIOStreamsDiscard(), source)
		o.Filename = kubeconfig(t, bundletest.Old(text))
		if err := o.Complete(); err != nil {
			t.Fatal(err)
		}
		if _, err := o.env(t.Context()); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(check.HintOf(err), "remove --filename")) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestBundleFromStandardInput(t *testing.T) {
	streams, in, _, _ := genericiooptions.NewTestIOStreams()
	in.WriteString(bundletest.Old("scheduler: {profiles: [{schedulerName: piped}]}"))
	o := NewOptions(streams)
	o.Kubeconfig, o.Context, o.Filename = kubeconfig(t, twoContexts), "one", "-"
	if err := o.Complete(); err != nil {
		t.Fatal(err)
	}
	if env, err := o.env(t.Context()); err != nil || env.SchedulerName != "piped" {
		t.Errorf("got %+v, %v", env, err)
	}
}

// TestRunLeavesTheProcessAlone proves that a run inside another command changes neither its signal handling nor its log.
func TestRunLeavesTheProcessAlone(t *testing.T) {
	var log bytes.Buffer
	klog.ClearLogger() // a command of another test may have set one
	klog.LogToStderr(false)
	klog.SetOutput(&log)
	defer klog.LogToStderr(true)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	source := func(ctx context.Context, _, _ string) (*check.Env, error) {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		<-signals
		time.Sleep(20 * time.Millisecond)
		return nil, errors.Join(ctx.Err(), errors.New("enough seen"))
	}
	o := NewOptions(genericiooptions.NewTestIOStreamsDiscard(), source)
	if err := errors.Join(o.Complete(), o.Validate()); err != nil {
		t.Fatal(err)
	}
	if err := o.Run(ctx); err == nil || strings.Contains(err.Error(), "canceled") {
		t.Errorf("the signal was the caller's: %v", err)
	}
	klog.InfoS("still heard")
	klog.Flush()
	if !strings.Contains(log.String(), "still heard") {
		t.Error("the log was turned off")
	}
}
