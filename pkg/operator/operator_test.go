// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
	config "github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/install"
	"github.com/fairlead-dev/fairlead/pkg/operator"
)

// bound is how long a look of the operator may take on a busy machine.
const bound = 3 * time.Minute

// env is a real API server and an operator next to it.
type env struct {
	*testing.T
	*daemontest.ControlPlane
	cfg     *rest.Config
	client  kubernetes.Interface
	bundles dynamic.ResourceInterface
	old     dynamic.ResourceInterface
	// metrics are those of the operator's webhook.
	metrics *prometheus.Registry
	// operator is how the operator of installed connects, and stop ends the one that runs.
	operator *rest.Config
	stop     func()
}

// controlPlane returns one for this test alone, which other tests use before and after it unless it has flags of its own.
func controlPlane(t *testing.T, apiServerArgs []string) *daemontest.ControlPlane {
	t.Helper()
	if len(apiServerArgs) > 0 {
		return daemontest.StartControlPlane(t, apiServerArgs...)
	}
	return daemontest.TakeControlPlane(t)
}

func start(t *testing.T, apiServerArgs ...string) *env {
	t.Helper()
	testutil.Limit(t, 5*time.Minute) // with eight busy loops, what takes ten seconds takes more than a minute
	cp := controlPlane(t, apiServerArgs)
	cfg, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	dyn := dynamic.NewForConfigOrDie(cfg)
	of := func(version string) dynamic.ResourceInterface {
		return dyn.Resource(schema.GroupVersionResource{Group: "fairlead.dev", Version: version, Resource: "bundles"})
	}
	return &env{T: t, ControlPlane: cp, cfg: cfg, client: cp.Client, bundles: of("v1beta1"), old: of("v1alpha1"), metrics: prometheus.NewRegistry()}
}

func (e *env) run() {
	e.Helper()
	port := daemontest.Ports(e.T, 1)[0]
	ctx, cancel := context.WithCancel(e.Context())
	done := make(chan error, 1)
	o := operator.Options{
		Namespace: "kube-system", WebhookAddress: "127.0.0.1:" + port, WebhookURL: "https://127.0.0.1:" + port + "/convert",
		WebhookNames: []string{"127.0.0.1"}, MetricsAddress: "0", HealthAddress: "0", Version: "v1.2.3",
	}
	o.Quick(e.metrics)
	go func() { done <- operator.Run(ctx, e.cfg, o) }()
	e.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			e.Errorf("the operator ended: %v", err)
		}
	})
}

func (e *env) bundle() (*v1beta1.Bundle, error) {
	u, err := e.bundles.Get(e.Context(), "default", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	b := &v1beta1.Bundle{}
	return b, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, b)
}

// reconciled waits for a condition Reconciled of the current generation with a reason.
func (e *env) reconciled(reason string) *v1beta1.Bundle {
	e.Helper()
	var b *v1beta1.Bundle
	testutil.Eventually(e.T, bound, func() (err error) {
		if b, err = e.bundle(); err != nil {
			return err
		}
		c := meta.FindStatusCondition(b.Status.Conditions, v1beta1.BundleReconciled)
		if c == nil || c.Reason != reason || c.ObservedGeneration != b.Generation {
			return fmt.Errorf("generation %d: %+v, want %s", b.Generation, c, reason)
		}
		return nil
	})
	return b
}

// loaded is the configuration of a Bundle with this spec.
func (e *env) loaded(spec map[string]any) *config.Bundle {
	e.Helper()
	file, err := json.Marshal(object("Bundle", "", "default", spec).Object)
	if err != nil {
		e.Fatal(err)
	}
	wanted, err := bundle.Load(file)
	if err != nil {
		e.Fatal(err)
	}
	return wanted
}

func (e *env) patch(text string) {
	e.Helper()
	if _, err := e.bundles.Patch(e.Context(), "default", types.MergePatchType, []byte(text), metav1.PatchOptions{}); err != nil {
		e.Fatal(err)
	}
}

func (e *env) scheduler() (*appsv1.Deployment, error) {
	return e.client.AppsV1().Deployments("kube-system").Get(e.Context(), "my-scheduler", metav1.GetOptions{})
}

// versions are the resource versions of the bundle's workloads, by name.
func (e *env) versions() map[string]string {
	e.Helper()
	out := map[string]string{}
	deployments, err := e.client.AppsV1().Deployments("").List(e.Context(), metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
	}
	for _, d := range deployments.Items {
		out[d.Name] = d.ResourceVersion
	}
	daemonsets, err := e.client.AppsV1().DaemonSets("").List(e.Context(), metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
	}
	for _, d := range daemonsets.Items {
		out[d.Name] = d.ResourceVersion
	}
	return out
}

// TestBundle follows a Bundle from its creation to its deletion: the operator adopts what
// the command has installed, restores a deleted object, names foreign fields and their
// owner, obeys Observe, refuses an invalid spec, and leaves all objects at the end.
func TestBundle(t *testing.T) {
	testutil.Full(t, "TestInstalled shows that a Bundle is applied and its objects are restored")
	daemontest.Beside(t)
	e := start(t)
	out, err := bundle.Render(config.New())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := install.Apply(t.Context(), e.cfg, out.Objects, install.Options{}); err != nil {
		t.Fatal(err)
	}
	before := e.versions()
	e.run()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "fairlead.dev/v1alpha1", "kind": "Bundle", "metadata": map[string]any{"name": "default"},
		"spec": map[string]any{"konnectivity": map[string]any{"agentPort": int64(config.DefaultAgentPort)}},
	}}
	testutil.Eventually(t, bound, func() error { // until the definitions are there
		_, err := e.old.Create(t.Context(), object, metav1.CreateOptions{})
		return err
	})
	b := e.reconciled("AsWanted")
	if diff := cmp.Diff(before, e.versions()); diff != "" {
		t.Errorf("adopting what the command installed wrote objects (-before +after):\n%s", diff)
	}
	if b.Status.Version != "v1.2.3" || len(b.Status.Components) != 2 || meta.IsStatusConditionTrue(b.Status.Conditions, v1beta1.BundleReady) {
		t.Errorf("status %+v; no node runs the agents, so Ready must not be True", b.Status)
	}

	if err := e.client.AppsV1().Deployments("kube-system").Delete(t.Context(), "my-scheduler", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, bound, func() error { _, err := e.scheduler(); return err })

	testForeignField(e)

	e.patch(`{"spec": {"scheduler": {"replicas": 0}}}`)
	e.reconciled("InvalidBundle")
	e.patch(`{"spec": {"managementPolicy": "Observe", "scheduler": {"replicas": 3}}}`)
	if b := e.reconciled("Drift"); len(b.Status.Drift) != 1 {
		t.Errorf("drift %+v", b.Status.Drift)
	}
	if d, err := e.scheduler(); err != nil || *d.Spec.Replicas != 2 {
		t.Errorf("%v, %v: Observe has changed something", d.Spec.Replicas, err)
	}
	e.patch(`{"spec": {"managementPolicy": "Enforce"}}`)
	e.reconciled("AsWanted")

	testInUse(e)

	if err := e.bundles.Delete(t.Context(), "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if d, err := e.scheduler(); err != nil || *d.Spec.Replicas != 3 {
		t.Errorf("after the deletion of the Bundle: %v", err)
	}
}

// testForeignField: a field that another manager has set is named with its owner, and the
// operator does not take it.
func testForeignField(e *env) {
	e.Helper()
	testutil.Eventually(e.T, bound, func() error {
		d, err := e.scheduler()
		if err != nil {
			return err
		}
		d.Spec.Replicas = ptr.To(int32(7))
		_, err = e.client.AppsV1().Deployments("kube-system").Update(e.Context(), d, metav1.UpdateOptions{FieldManager: "other-manager"})
		return err
	})
	b := e.reconciled("Blocked")
	found := false
	for _, d := range b.Status.Drift {
		found = found || d.Field == ".spec.replicas" && d.Owner != ""
	}
	if !found {
		e.Errorf("drift %+v lacks .spec.replicas and its owner", b.Status.Drift)
	}
	d, err := e.scheduler()
	if err != nil || *d.Spec.Replicas != 7 {
		e.Errorf("%v: the field was taken", err)
	}
	if err := e.client.AppsV1().Deployments("kube-system").Delete(e.Context(), "my-scheduler", metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
	testutil.Eventually(e.T, bound, func() error { _, err := e.scheduler(); return err })
}

// testInUse: while kube-apiserver uses the tunnel, the operator does not delete agents because
// a Bundle says so, and says why, as the command does.
func testInUse(e *env) {
	e.Helper()
	e.condition(e.bundles, "default", v1beta1.BundleControlPlaneReady, v1beta1.ReasonNotVisible)
	e.tunnelUser()
	e.condition(e.bundles, "default", v1beta1.BundleControlPlaneReady, v1beta1.ReasonConfigured)
	e.patch(`{"spec": {"konnectivity": {"enabled": false}}}`)
	b := e.reconciled("Blocked")
	c := meta.FindStatusCondition(b.Status.Conditions, v1beta1.BundleReconciled)
	if !strings.Contains(c.Message, "kube-apiserver-node-1") || !strings.Contains(c.Message, "controlplane uninstall") {
		e.Errorf("the condition says %q", c.Message)
	}
	if _, err := e.client.AppsV1().DaemonSets("kube-system").Get(e.Context(), "konnectivity-agent", metav1.GetOptions{}); err != nil {
		e.Errorf("the agents are gone: %v", err)
	}
	e.patch(`{"spec": {"konnectivity": {"enabled": true}}}`)
	e.reconciled("AsWanted")
}
