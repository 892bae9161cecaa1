// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// using is a check that talks to the run's probe pod; see tells it which pod it got.
func using(id string, see func(ctx context.Context, pod string, err error) error) Check {
	c := checkOf(id, func(ctx context.Context, s *Scope) error {
		pod, err := s.probePod(ctx)
		if err != nil {
			return see(ctx, "", err)
		}
		return see(ctx, pod.Namespace+"/"+pod.Name, nil)
	})
	c.usesProbePod = true
	return c
}

// TestSharedProbe: checks that talk to a pod share one, which is deleted with the last of them.
func TestSharedProbe(t *testing.T) {
	api := newStubAPI(t)
	var seen []string
	see := func(_ context.Context, pod string, err error) error {
		seen = append(seen, pod)
		return err
	}
	thereAfter := false
	report, err := Run(t.Context(), api.env(t), Options{Checks: []Check{
		using("a", see), checkOf("between", passes), using("b", see),
		checkOf("after", func(context.Context, *Scope) error { thereAfter = api.find("/pods/probe") != nil; return nil }),
	}}, &quiet{})
	if err != nil || !report.Success() {
		t.Fatalf("%v, %+v", err, report)
	}
	if len(seen) != 2 || seen[0] == "" || seen[0] != seen[1] {
		t.Errorf("pods %q, want the same twice", seen)
	}
	if thereAfter || api.find("/api/v1/namespaces/"+NamespacePrefix) != nil {
		t.Errorf("the pod or its namespace outlived the last check that uses it: %t, %v", thereAfter, api.find("/api/v1/namespaces/"+NamespacePrefix))
	}
}

// TestSharedProbeThatNeverRuns: each check that needs the pod says why it does not run, and nothing is left.
func TestSharedProbeThatNeverRuns(t *testing.T) {
	t.Parallel()
	api := newStubAPI(t)
	api.bind = func(*corev1.Pod) (string, string) { return "", "" }
	fails := func(_ context.Context, _ string, err error) error { return err }
	report, err := Run(t.Context(), api.env(t), Options{Timeout: 5 * time.Second, Checks: []Check{using("a", fails), using("b", fails)}}, &quiet{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Checks {
		if r.Status != Failed || !strings.Contains(r.Error, "not bound to a node") || !strings.Contains(r.Hint, "--image") {
			t.Errorf("%s: %s %q, hint %q", r.ID, r.Status, r.Error, r.Hint)
		}
	}
	if api.find("/api/v1/namespaces/"+NamespacePrefix) != nil {
		t.Errorf("left: %v", api.find("/api/v1/namespaces/"+NamespacePrefix))
	}
}

// TestSharedProbeOfAnInterruptedRun: the pod is deleted although not all of its users have run.
func TestSharedProbeOfAnInterruptedRun(t *testing.T) {
	api := newStubAPI(t)
	ctx, cancel := context.WithCancel(t.Context())
	report, err := Run(ctx, api.env(t), Options{Checks: []Check{
		using("a", func(context.Context, string, error) error { cancel(); return nil }),
		using("b", func(context.Context, string, error) error { return nil }),
	}}, &quiet{})
	if err != nil || !report.Interrupted {
		t.Fatalf("%v, %+v", err, report)
	}
	if api.find("/api/v1/namespaces/"+NamespacePrefix) != nil {
		t.Errorf("left: %v", api.find("/api/v1/namespaces/"+NamespacePrefix))
	}
}

// TestWhoSharesTheProbe: only checks that just talk to a pod share it; above all, a check that stops agents
// does not.
func TestWhoSharesTheProbe(t *testing.T) {
	var ids []string
	for _, c := range All() {
		if c.usesProbePod {
			ids = append(ids, c.ID)
		}
	}
	if !slices.Equal(ids, []string{"tunnel-logs", "tunnel-exec", "tunnel-port-forward"}) {
		t.Errorf("got %q", ids)
	}
}
