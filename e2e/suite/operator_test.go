// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// TestUpWithOperator: `fairlead up --operator` makes a cluster, which in `make test` is the one of all tests, whose operator applies a Bundle of
// the old version. The API server converts it through the tunnel: not without agents. The next
// `fairlead up` leaves what the operator applies.
// It observes CRD-150, CRD-151, CRD-152, VER-02, VER-65 and VER-85 of docs/requirements.md.
func TestUpWithOperator(t *testing.T) {
	if !suite.Simulated() {
		t.Skip("e2e/kind/lifecycle has the test for kind: it makes a cluster anyway")
	}
	const limit = 5 * time.Minute
	testutil.Limit(t, limit) // on a busy machine: it waits for the operator, and twice for agents
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	name := suite.Name
	if !testutil.Main() {
		name = harness.ClusterName("operator")
	}
	fairlead := func(ctx context.Context, args ...string) {
		t.Helper()
		cmd, stdout, stderr := suite.Home.Command(ctx, args...)
		if err := cmd.Run(); err != nil {
			t.Fatalf("fairlead %v: %v\n%s%s", args, err, stdout, stderr)
		}
	}
	up := []string{"up", "--name", name, "--no-verify", "--quiet"}
	if !testutil.Main() {
		up = append(up, "--nodes", "1", "--agents", "1", "--operator")
		atEnd(ctx, t, func(ctx context.Context) { fairlead(ctx, "down", "--name", name, "--quiet") })
		fairlead(ctx, up...)
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: suite.Home.Kubeconfig()},
		&clientcmd.ConfigOverrides{CurrentContext: cluster.ContextName(name)}).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	bundles := func(version string) dynamic.ResourceInterface {
		return harness.Bundles(dynamic.NewForConfigOrDie(config), version)
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "fairlead.dev/v1alpha1", "kind": "Bundle", "metadata": map[string]any{"name": "default"},
		"spec": map[string]any{"konnectivity": map[string]any{"agentPort": int64(8140)}},
	}}
	if _, err := bundles("v1alpha1").Create(ctx, object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ready := func() {
		t.Helper()
		if err := harness.WaitReconciled(ctx, dynamic.NewForConfigOrDie(config), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	ready()
	explained(ctx, t, name)
	deployments := dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).Namespace("kube-system")
	if testutil.Main() { // other tests have a cluster without these workloads
		daemonSets := dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}).Namespace("kube-system")
		atEnd(ctx, t, func(ctx context.Context) {
			foreground := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}
			err := errors.Join(deployments.Delete(ctx, "my-scheduler", foreground), daemonSets.Delete(ctx, "konnectivity-agent", foreground))
			if err != nil {
				t.Error(err)
			}
		})
	}
	before, err := deployments.Get(ctx, "my-scheduler", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fairlead(ctx, up...)
	ready()
	if after, err := deployments.Get(ctx, "my-scheduler", metav1.GetOptions{}); err != nil || after.GetUID() != before.GetUID() {
		t.Errorf("the second `fairlead up` has deleted what the operator applied: %v", err)
	}
	throughTunnel(ctx, t, name, bundles("v1alpha1"))
	if err := bundles("v1beta1").Delete(ctx, "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	err = harness.Wait(ctx, time.Minute, "the Bundle to be gone", func(ctx context.Context) error {
		if _, err := bundles("v1beta1").Get(ctx, "default", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading it: %w", errors.Join(err, errors.New("it is there")))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	fairlead(ctx, up...)
	if after, err := deployments.Get(ctx, "my-scheduler", metav1.GetOptions{}); err != nil || after.GetUID() != before.GetUID() {
		t.Errorf("without a Bundle, `fairlead up` has deleted what the operator left: %v", err)
	}
}

// explained: kubectl describes each field of the kinds, and shows their columns.
func explained(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	kubectl, err := suite.BuildKubectl(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		want []string
	}{
		{"explain bundles.spec.managementPolicy", []string{"DESCRIPTION:", "ENUM:", "Observe"}},
		{"explain bundles.spec.konnectivity --recursive", []string{"agent", "server", "<Object>"}},
		{"explain schedulerprofiles.spec", []string{"FIELDS:", "DESCRIPTION:"}},
		{"explain tunnelpools.spec.replicas", []string{"FIELD: replicas <integer>"}},
		{"explain bundles --api-version=fairlead.dev/v1alpha1", []string{"VERSION:    v1alpha1"}},
		{"get bundles", []string{"NAME", "READY", "default"}},
		{"get fairlead", []string{"bundle.fairlead.dev/default"}},
	} {
		cmd, stdout, stderr := suite.Program(ctx, kubectl, append(strings.Fields(c.args), "--kubeconfig="+suite.Home.Kubeconfig(), "--context="+cluster.ContextName(name))...)
		if err := cmd.Run(); err != nil {
			t.Errorf("kubectl %s: %v\n%s", c.args, err, stderr)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("kubectl %s lacks %q:\n%s", c.args, want, stdout)
			}
		}
		if strings.Contains(stdout.String(), "<empty>") {
			t.Errorf("kubectl %s has no description:\n%s", c.args, stdout)
		}
	}
}

// throughTunnel: the old version can be read while an agent runs, and not without one.
func throughTunnel(ctx context.Context, t *testing.T, name string, old dynamic.ResourceInterface) {
	read := func(ctx context.Context) error {
		_, err := old.Get(ctx, "default", metav1.GetOptions{})
		return err
	}
	if err := read(ctx); err != nil {
		t.Fatal(err)
	}
	agents := (&harness.Cluster{Home: suite.Home, Name: name, Provider: harness.Embedded}).Agents()
	if err := agents.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	err := harness.Wait(ctx, time.Minute, "conversion to fail without agents", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := read(ctx); err == nil {
			return fmt.Errorf("the object is converted")
		} else if !strings.Contains(err.Error(), "conversion webhook") && ctx.Err() == nil {
			return err
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := agents.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := harness.Wait(ctx, time.Minute, "conversion with an agent again", read); err != nil {
		t.Error(err)
	}
}
