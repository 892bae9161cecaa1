// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/observe/overview"
)

// tableOf is a status that shows one line.
type tableOf struct{ cluster.Summary }

func (tableOf) Problem() string { return "etcd is stopped" }
func (tableOf) WriteTable(w io.Writer) error {
	_, err := fmt.Fprintln(w, "the components")
	return err
}

// made is a provider of one cluster with this status.
type made struct {
	cluster.Provider
	status cluster.Summary
}

func (m made) Status(context.Context, string) (cluster.Status, error) { return tableOf{m.status}, nil }

// alone gives the command directories without any cluster and a kubeconfig with this text; "" is no file.
func alone(t *testing.T, kubeconfig string) {
	t.Helper()
	dir := t.TempDir()
	for _, v := range []string{"HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "FAIRLEAD_HOME"} {
		t.Setenv(v, dir)
	}
	file := filepath.Join(dir, "kubeconfig")
	t.Setenv("KUBECONFIG", file)
	if kubeconfig == "" {
		return
	}
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
}

// contextFor is a kubeconfig whose current context leads to an API server.
func contextFor(server string) string {
	return `{"apiVersion":"v1","kind":"Config","current-context":"prod","contexts":[{"name":"prod","context":{"cluster":"c","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":"` + server + `"}}],"users":[{"name":"u","user":{}}]}`
}

// empty is an API server of a cluster that has nothing; it counts the lists of Pods of all schedulers.
func empty(t *testing.T, counts *atomic.Int32) string {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("limit") != "" {
			counts.Add(1)
		}
		w.Header().Set("Content-Type", "application/json")
		body := `{"items":[]}`
		if r.URL.Path == "/version" {
			body = `{"gitVersion":"v1.36.3"}`
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(api.Close)
	return api.URL
}

// TestLocalVerdict proves that the exit code of a cluster of "fairlead up" is that of its components and of what they do, as for any other cluster.
func TestLocalVerdict(t *testing.T) {
	ready, running, stopped := cluster.Summary{Running: true, Healthy: true}, cluster.Summary{Running: true}, cluster.Summary{}
	view := func(state overview.State) *overview.Overview {
		return &overview.Overview{State: state, Problems: []string{"the Lease is old"}}
	}
	for name, tc := range map[string]struct {
		components cluster.Summary
		view       *overview.Overview
		err, want  error
	}{
		"all is well":                       {ready, view(overview.Ready), nil, nil},
		"a Lease is old":                    {ready, view(overview.Unhealthy), nil, ErrUnhealthy},
		"Leases are unknown":                {ready, view(overview.StateUnknown), nil, ErrUnknown},
		"the kubeconfig is broken":          {ready, nil, fmt.Errorf("%w: x", ErrUnknown), ErrUnknown},
		"the kubeconfig has no context":     {ready, nil, nil, nil},
		"a component is down":               {running, view(overview.Ready), nil, ErrUnhealthy},
		"a component is down, rest unknown": {running, view(overview.StateUnknown), nil, ErrUnhealthy},
		"stopped":                           {stopped, view(overview.Ready), nil, ErrUnhealthy},
	} {
		o := &options{}
		l, err := o.local(t.Context(), made{status: tc.components}, func(context.Context, string) (*overview.Overview, error) { return tc.view, tc.err })
		if err != nil || !errors.Is(l.verdict, tc.want) {
			t.Errorf("%s: %v, %v, want %v", name, l.verdict, err, tc.want)
		}
		if shown := l.report.Overview != nil; shown != (tc.view != nil && tc.components.Running) {
			t.Errorf("%s: overview shown: %v", name, shown)
		}
	}
}

// TestLowerHalf proves that what keeps the lower half of a local cluster's screen away is said: a kubeconfig that lost the context with a warning,
// one that cannot be read with the exit code for unknown.
func TestLowerHalf(t *testing.T) {
	for name, tc := range map[string]struct {
		kubeconfig, warning string
		want                error
	}{
		"no kubeconfig":   {"", "no kubeconfig with a context", nil},
		"other context":   {contextFor("http://127.0.0.1:1"), `no context "fairlead-dev"`, nil},
		"broken":          {"{", "", ErrUnknown},
		"other cluster's": {strings.ReplaceAll(contextFor("http://127.0.0.1:1"), "prod", "fairlead-dev"), "is for another cluster", nil},
	} {
		alone(t, tc.kubeconfig)
		streams, _, _, errOut := genericiooptions.NewTestIOStreams()
		o := &options{streams: streams}
		view, err := o.overview(t.Context(), "dev")
		if view != nil || !errors.Is(err, tc.want) || !strings.Contains(errOut.String(), tc.warning) || tc.warning == "" != (errOut.Len() == 0) {
			t.Errorf("%s: %v, %v, %q", name, view, err, errOut.String())
		}
	}
}

// TestRealError proves that the command reports a bundle or kubeconfig that it cannot use, instead of a local cluster that the user did not ask for, and that
// a machine without any cluster learns how to create one.
func TestRealError(t *testing.T) {
	for name, tc := range map[string]struct {
		kubeconfig string
		args       []string
		want       string
	}{
		"typo in -f":           {contextFor("http://127.0.0.1:1"), []string{"-f", "typo.yaml"}, "typo.yaml"},
		"typo, no kubeconfig":  {"", []string{"-f", "typo.yaml"}, "typo.yaml"},
		"broken kubeconfig":    {"{", nil, "read kubeconfig"},
		"no current context":   {strings.Replace(contextFor("http://127.0.0.1:1"), `"current-context":"prod",`, "", 1), nil, "no current context"},
		"context of the past":  {strings.Replace(contextFor("http://127.0.0.1:1"), `"current-context":"prod"`, `"current-context":"old"`, 1), nil, `no context "old"`},
		"no cluster":           {"", nil, "no such cluster"},
		"no cluster by name":   {contextFor("http://127.0.0.1:1"), []string{"--name", "other"}, "no such cluster"},
		"no cluster, wait":     {"", []string{"--wait", "1s"}, "no such cluster"},
		"unreachable":          {contextFor("http://127.0.0.1:1"), nil, ErrUnhealthy.Error()},
		"--context is missing": {contextFor("http://127.0.0.1:1"), []string{"--context", "x"}, `no context "x"`},
	} {
		alone(t, tc.kubeconfig)
		streams, _, _, _ := genericiooptions.NewTestIOStreams()
		cmd := NewCommand(streams)
		cmd.SetArgs(append(tc.args, "--output", "json"))
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestWatch proves that a watched cluster is shown again and again until the user interrupts the command, in documents that can be told apart, and
// that Pods are counted for several looks at once.
func TestWatch(t *testing.T) {
	var counts atomic.Int32
	alone(t, contextFor(empty(t, &counts)))
	for _, format := range []string{"json", "yaml", ""} {
		counts.Store(0)
		ctx, cancel := context.WithCancel(t.Context())
		var out bytes.Buffer
		o := &options{output: format}
		o.streams.Out, o.streams.ErrOut = &out, io.Discard
		const looks = 3
		taken := 0
		err := o.watching(ctx, func(ctx context.Context) (look, error) {
			if taken++; taken > looks {
				cancel()
			}
			return o.any(ctx)
		}, false)
		cancel()
		if err != nil {
			t.Fatalf("%q: %v", format, err)
		}
		if n := counts.Load(); n != 1 {
			t.Errorf("%q: Pods were counted %d times", format, n)
		}
		documents := strings.Split(out.String(), "---\n")
		if format == "json" {
			if documents = nil; strings.Contains(out.String(), "---") {
				t.Errorf("no JSON:\n%s", out.String())
			}
			for dec := json.NewDecoder(&out); dec.More(); {
				var r struct{ Overview struct{ State string } }
				if err := dec.Decode(&r); err != nil {
					t.Fatal(err)
				}
				documents = append(documents, r.Overview.State)
			}
		}
		if len(documents) != looks {
			t.Errorf("%q: %d documents: %q", format, len(documents), documents)
		}
		for _, d := range documents {
			if !strings.Contains(d, string(overview.Ready)) {
				t.Errorf("%q: %q", format, d)
			}
		}
	}
}

// TestWatchedScreen proves that a terminal keeps the last look until the next one is complete, and that an unhealthy cluster ends nothing.
func TestWatchedScreen(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	o := &options{}
	o.streams.Out = &out
	want := ""
	err := o.watching(ctx, func(context.Context) (look, error) {
		if got := out.String(); got != want {
			t.Errorf("during a look %q, want %q", got, want)
		}
		if strings.Count(want, eraseScreen) == 2 {
			cancel()
		}
		want += eraseScreen + "screen"
		return look{human: func(w io.Writer) error { _, err := io.WriteString(w, "screen"); return err }, verdict: ErrUnhealthy}, nil
	}, true)
	if err != nil || strings.Count(out.String(), eraseScreen) != 2 {
		t.Errorf("%v: %q", err, out.String())
	}
	failure := errors.New("gone")
	if err := o.watching(t.Context(), func(context.Context) (look, error) { return look{}, failure }, true); !errors.Is(err, failure) {
		t.Errorf("nothing to show: %v", err)
	}
}

// TestWait proves that --wait shows one look alone: the first good one, or the last.
func TestWait(t *testing.T) {
	var out bytes.Buffer
	o := &options{wait: time.Hour}
	o.streams.Out = &out
	taken := 0
	take := func(context.Context) (look, error) {
		taken++
		l := look{human: func(w io.Writer) error { _, err := fmt.Fprint(w, "look ", taken); return err }, verdict: ErrUnhealthy}
		if taken == 3 {
			l.verdict = nil
		}
		return l, nil
	}
	if err := o.once(t.Context(), take); err != nil || out.String() != "look 3" {
		t.Errorf("%v, %q", err, out.String())
	}
	out.Reset()
	noted := func(context.Context) (look, error) {
		taken++
		l := look{human: func(w io.Writer) error { _, err := fmt.Fprint(w, "look ", taken); return err }, report: report{Overview: &overview.Overview{Healthy: true}}}
		if taken < 5 {
			l.report.Overview.Notes = []string{"1 of 2 agents of the tunnel are not ready"}
		}
		return l, nil
	}
	if err := o.once(t.Context(), noted); err != nil || out.String() != "look 5" {
		t.Errorf("with notes: %v, %q", err, out.String())
	}
	out.Reset()
	o.wait, taken = 0, 3
	if err := o.once(t.Context(), noted); err != nil || out.String() != "look 4" {
		t.Errorf("notes at the end of the time: %v, %q", err, out.String())
	}
	out.Reset()
	taken = 3
	if err := o.once(t.Context(), take); !errors.Is(err, ErrUnhealthy) || out.String() != "look 4" {
		t.Errorf("%v, %q", err, out.String())
	}
}
