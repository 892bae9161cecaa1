// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion/webhook"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/crds"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// server is a real kube-apiserver with our definitions, which converts by our handler.
type server struct {
	dynamic  dynamic.Interface
	config   *rest.Config
	warnings *warnings
}

type warnings struct {
	mu   sync.Mutex
	seen []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, text)
}

func (w *warnings) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.seen = nil }()
	return strings.Join(w.seen, "\n")
}

func startServer(t *testing.T) *server {
	t.Helper()
	hook := httptest.NewTLSServer(webhook.New(webhook.Options{}))
	t.Cleanup(hook.Close)
	cp := daemontest.StartControlPlane(t)
	config, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{config: config, warnings: &warnings{}}
	config.QPS, config.WarningHandler = -1, s.warnings
	s.dynamic = dynamic.NewForConfigOrDie(config)
	definitions, err := crds.WithWebhook(apiextensionsv1.WebhookClientConfig{
		URL:      ptr.To(hook.URL + webhook.Path),
		CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}),
	})
	if err != nil {
		t.Fatal(err)
	}
	client := apiextensions.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions()
	for _, crd := range definitions {
		if _, err := client.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if text := s.warnings.take(); text != "" {
		t.Errorf("the API server warns about the definitions: %s", text)
	}
	for _, crd := range definitions {
		daemontest.Eventually(t, time.Minute, func() error {
			live, err := client.Get(t.Context(), crd.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, c := range live.Status.Conditions {
				if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("%s is not established: %+v", crd.Name, live.Status.Conditions)
		})
		for _, v := range crd.Spec.Versions { // served a moment later
			daemontest.Eventually(t, time.Minute, func() error {
				_, err := s.resource(v.Name, crd.Spec.Names.Plural, "").List(t.Context(), metav1.ListOptions{})
				return err
			})
		}
	}
	_ = s.warnings.take() // of the deprecated version
	return s
}

func (s *server) resource(version, plural, namespace string) dynamic.ResourceInterface {
	r := s.dynamic.Resource(schema.GroupVersionResource{Group: "fairlead.dev", Version: version, Resource: plural})
	if namespace == "" {
		return r
	}
	return r.Namespace(namespace)
}

// apply creates or changes an object with strict validation of its fields.
func (s *server) apply(ctx context.Context, text string) error {
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		return err
	}
	gv, err := schema.ParseGroupVersion(u.GetAPIVersion())
	if err != nil {
		return err
	}
	plural := map[string]string{"Bundle": "bundles", "SchedulerProfile": "schedulerprofiles", "TunnelPool": "tunnelpools"}[u.GetKind()]
	data, err := u.MarshalJSON()
	if err != nil {
		return err
	}
	_, err = s.resource(gv.Version, plural, u.GetNamespace()).Patch(ctx, u.GetName(), types.ApplyPatchType, data,
		metav1.PatchOptions{FieldManager: "test", Force: ptr.To(true), FieldValidation: metav1.FieldValidationStrict})
	return err
}

// TestAgainstAPIServer runs all tests that need a real API server against one.
func TestAgainstAPIServer(t *testing.T) {
	s := startServer(t)
	t.Run("versions", func(t *testing.T) { testVersions(t, s) })
	t.Run("rules", func(t *testing.T) { testRules(t, s) })
	t.Run("example", func(t *testing.T) { testExample(t, s) })
	t.Run("pools", func(t *testing.T) { testPools(t, s) })
}

// testVersions: an object of the old version is read in the new one and back without a
// loss, with the deprecation warning in the old one only.
// It observes VER-03, VER-30, VER-31, VER-32, VER-66 and VER-67 of docs/requirements.md.
func testVersions(t *testing.T, s *server) {
	ctx := t.Context()
	if err := s.apply(ctx, `{apiVersion: fairlead.dev/v1alpha1, kind: Bundle, metadata: {name: default}, spec: {
		scheduler: {profiles: [{schedulerName: a, pluginConfig: [{name: NodeAffinity, args: {any: [1, {b: c}]}}]}]},
		pki: {validity: 1500ms}, konnectivity: {serverHost: 192.0.2.7, agent: {identifiers: 'host=a&region=b', hostNetwork: true}}}}`); err != nil {
		t.Fatal(err)
	}
	if text := s.warnings.take(); !strings.Contains(text, "use fairlead.dev/v1beta1 Bundle") {
		t.Errorf("warnings %q", text)
	}
	old, err := s.resource("v1alpha1", "bundles", "").Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.warnings.take()
	hub, err := s.resource("v1beta1", "bundles", "").Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if text := s.warnings.take(); text != "" {
		t.Errorf("v1beta1 warns: %s", text)
	}
	want := map[string]any{
		"scheduler": old.Object["spec"].(map[string]any)["scheduler"], "pki": map[string]any{"validitySeconds": int64(2)},
		"konnectivity": map[string]any{"serverAddresses": []any{map[string]any{"host": "192.0.2.7"}}, "agent": map[string]any{
			"hostNetwork": "Enabled", "identifiers": []any{map[string]any{"type": "Host", "value": "a"}}}},
	}
	if diff := cmp.Diff(want, hub.Object["spec"]); diff != "" {
		t.Errorf("v1beta1 (-want +got):\n%s", diff)
	}
	// A client of the new version changes one field; the old version keeps all others.
	if err := unstructured.SetNestedField(hub.Object, "Observe", "spec", "managementPolicy"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.resource("v1beta1", "bundles", "").Update(ctx, hub, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	again, err := s.resource("v1alpha1", "bundles", "").Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(old.Object, "Observe", "spec", "managementPolicy"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(old.Object["spec"], again.Object["spec"]); diff != "" {
		t.Errorf("v1alpha1 after a change by v1beta1 (-want +got):\n%s", diff)
	}
	list, err := s.resource("v1beta1", "bundles", "").List(ctx, metav1.ListOptions{FieldSelector: "spec.managementPolicy=Observe"})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("by policy: %v, %v", list, err)
	}
	if err := s.resource("v1beta1", "bundles", "").Delete(ctx, "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// testRules: the API server refuses what can never work, and says why.
// It observes CRD-43, CRD-44, CRD-45 and CRD-104 of docs/requirements.md.
func testRules(t *testing.T, s *server) {
	const bundle, profile, pool = "apiVersion: fairlead.dev/v1beta1\nkind: Bundle\n", "apiVersion: fairlead.dev/v1beta1\nkind: SchedulerProfile\n", "apiVersion: fairlead.dev/v1beta1\nkind: TunnelPool\n"
	old := func(text string) string { return strings.Replace(text, "v1beta1", "v1alpha1", 1) }
	const plugins = bundle + "metadata: {name: default}\nspec: {namespace: a, scheduler: {plugins: {"
	ctx := t.Context()
	for _, step := range []struct{ object, want string }{
		{bundle + "metadata: {name: mine}", "name it default"},
		{bundle + "metadata: {name: default}\nspec: {schedular: {}}", "schedular"},
		{bundle + "metadata: {name: default}\nspec: {konnectivity: {agentPort: 9132}}", "agentPort"},
		{bundle + "metadata: {name: default}\nspec: {scheduler: {leaderElection: {leaseName: kube-scheduler}}}", "leaseName: Invalid value"},
		{bundle + "metadata: {name: default}\nspec: {konnectivity: {agent: {hostNetwork: Maybe}}}", `"Enabled", "Disabled"`},
		{bundle + "metadata: {name: default}\nspec: {namespace: a}", ""},
		{bundle + "metadata: {name: default}\nspec: {namespace: b}", "spec.namespace: Invalid value"},
		{bundle + "metadata: {name: default}\nspec: {scheduler: {replicas: 1}}", "is immutable"},
		{strings.Replace(bundle, "v1beta1", "v1alpha1", 1) + "metadata: {name: default}\nspec: {namespace: b}", "spec.namespace: Invalid value"},
		{bundle + "metadata: {name: default}\nspec: {namespace: a, scheduler: {replicas: 3}}", ""},
		{bundle + "metadata: {name: default}\nspec: {scheduler: {profiles: {schedulerName: x}}}", "profiles: expected list"},
		{bundle + "metadata: {name: default}\nspec: {tunnelAPI: {resources: {limits: {cpu: [1]}}}}", "tunnelAPI.resources.limits.cpu"},
		{profile + "metadata: {name: a}\nspec: {strategy: Spread}", "schedulerName: Required value"},
		{profile + "metadata: {name: a}\nspec: {schedulerName: default-scheduler, strategy: Spread}", "choose another name"},
		{profile + "metadata: {name: a}\nspec: {schedulerName: a, strategy: Random}", "Unsupported value"},
		{profile + "metadata: {name: a}\nspec: {schedulerName: a, strategy: Spread, batch: {}}", "needs strategy: Batch"},
		{profile + "metadata: {name: a}\nspec: {schedulerName: a, strategy: Raw}", "belong together"},
		{profile + "metadata: {name: a}\nspec: {schedulerName: a, strategy: Raw, raw: {plugins: {any: [1]}}}", ""},
		{profile + "metadata: {name: a}\nspec: {schedulerName: b, strategy: Batch}", "is immutable"},
		{pool + "metadata: {name: a, namespace: default}\nspec: {form: DaemonSet, replicas: 2}", "a DaemonSet runs one Pod per node"},
		{pool + "metadata: {name: a, namespace: default}\nspec: {serverAddresses: [{host: a}, {host: b}]}", "must have at most 1 item"},
		// What v1beta1 forbids, v1alpha1 forbids as well: the API server checks the version of the request only.
		{old(pool) + "metadata: {name: a, namespace: default}\nspec: {form: DaemonSet, replicas: 2}", "spec.replicas: Forbidden: a DaemonSet runs one Pod per node"},
		{old(pool) + "metadata: {name: a, namespace: default}\nspec: {agentPort: 80}", "spec.agentPort: Invalid value"},
		{old(bundle) + "metadata: {name: default}\nspec: {namespace: a, scheduler: {leaderElection: {leaseName: kube-scheduler}}}", "leaseName: Invalid value"},
		{old(bundle) + "metadata: {name: default}\nspec: {namespace: a, scheduler: {leaderElection: {leaseDuration: soon}}}", "leaseDuration: Invalid value"},
		{old(bundle) + "metadata: {name: default}\nspec: {namespace: a, pki: {validity: -1h}}", "pki.validity: Invalid value"},
		{old(bundle) + "metadata: {name: default}\nspec: {namespace: a, konnectivity: {agentPort: 80}}", "agentPort: Invalid value"},
		{old(bundle) + "metadata: {name: default}\nspec: {namespace: a, scheduler: {profiles: [5]}}", "profiles[0]: expected map"},
		{old(bundle) + "metadata: {name: default}\nspec: {namespace: A}", "spec.namespace in body should match"},
		{old(bundle) + "metadata: {name: default}\nspec: {namespace: a, gateway: {hosts: [" + strings.Repeat("a", 254) + "]}}", "spec.gateway.hosts[0]: Too long"},
		{bundle + "metadata: {name: default}\nspec: {namespace: a, gateway: {hosts: [" + strings.Repeat("a", 254) + "]}}", "spec.gateway.hosts[0]: Too long"},
		// The arguments of the scheduler's plugins: both versions have them from one type.
		{plugins + "failoverBarrier: {timeout: soon}}}}", "failoverBarrier.timeout: Invalid value"},
		{plugins + "failoverBarrier: {timeout: 1ms}}}}", "must be a duration between 100ms and 1m"},
		{plugins + "tunnelReach: {mode: Maybe}}}}", `"Prefer", "Require"`},
		{plugins + "politePreemption: {minCandidateNodesPercentage: 101}}}}", "should be less than or equal to 100"},
		{plugins + "politePreemption: {minCandidateNodesAbsolute: -1}}}}", "should be greater than or equal to 0"},
		{plugins + "failoverBarrier: {timeout: 1m}, tunnelReach: {mode: Require}, politePreemption: {minCandidateNodesPercentage: 0}}}}", ""},
		{old(plugins) + "failoverBarrier: {timeout: soon}}}}", "failoverBarrier.timeout: Invalid value"},
		{old(plugins) + "failoverBarrier: {timeout: 1ms}}}}", "must be a duration between 100ms and 1m"},
		{old(plugins) + "tunnelReach: {mode: Maybe}}}}", `"Prefer", "Require"`},
		{old(plugins) + "politePreemption: {minCandidateNodesPercentage: 101}}}}", "should be less than or equal to 100"},
		{old(plugins) + "politePreemption: {minCandidateNodesAbsolute: -1}}}}", "should be greater than or equal to 0"},
		{old(plugins) + "failoverBarrier: {timeout: 1m}, tunnelReach: {mode: Require}, politePreemption: {minCandidateNodesPercentage: 0}}}}", ""},
		{old(pool) + "metadata: {name: a, namespace: default}\nspec: {identifiers: '" + strings.Repeat("host=a&", 64) + "host=a'}", "must have at most 64 identifiers"},
		{old(pool) + "metadata: {name: a, namespace: default}\nspec: {identifiers: 'host=" + strings.Repeat("a", 254) + "'}", "at most 253 characters"},
		// As much as v1beta1 allows.
		{old(pool) + "metadata: {name: full, namespace: default}\nspec: {identifiers: '" + strings.Repeat("&ipv4="+strings.Repeat("1", 253), 64)[1:] + "'}", ""},
		{old(bundle) + "metadata: {name: default}\nspec: {namespace: a, konnectivity: {server: {drainTimeout: 0s}}, pki: {validity: 1h30m, caValidity: 1500ms}}", ""},
	} {
		err := s.apply(ctx, step.object)
		if step.want == "" && err != nil || step.want != "" && (err == nil || !strings.Contains(err.Error(), step.want)) {
			t.Errorf("%s\n%v, want %q", step.object, err, step.want)
		}
	}
	for _, version := range []string{"v1beta1", "v1alpha1"} { // what one version takes, the other one takes as well
		pools := s.resource(version, "tunnelpools", "default")
		full, err := pools.Get(ctx, "full", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		full.Object["metadata"] = map[string]any{"name": "full-" + version}
		if _, err := pools.Create(ctx, full, metav1.CreateOptions{}); err != nil {
			t.Errorf("%s refuses what the other version has taken: %v", version, err)
		}
	}
	for _, version := range []string{"v1alpha1", "v1beta1"} { // not in two steps either
		_, err := s.resource(version, "bundles", "").Patch(ctx, "default", types.MergePatchType, []byte(`{"spec": null}`), metav1.PatchOptions{})
		if err == nil || !strings.Contains(err.Error(), "is immutable") {
			t.Errorf("%s, a Bundle without its spec: %v", version, err)
		}
	}
	raw, err := s.resource("v1beta1", "schedulerprofiles", "").Get(ctx, "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"plugins": map[string]any{"any": []any{int64(1)}}}
	if diff := cmp.Diff(want, raw.Object["spec"].(map[string]any)["raw"]); diff != "" {
		t.Errorf("a raw profile was pruned (-want +got):\n%s", diff)
	}
	if err := s.resource("v1beta1", "bundles", "").Delete(ctx, "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// testExample: the commented example is an object that the API server takes, in full.
func testExample(t *testing.T, s *server) {
	data, err := os.ReadFile("../../../../../deploy/bundle.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.warnings.take() // of the tests before
	if err := s.apply(t.Context(), string(data)); err != nil {
		t.Fatal(err)
	}
	if text := s.warnings.take(); text != "" {
		t.Errorf("warnings: %s", text)
	}
	if err := s.resource("v1beta1", "bundles", "").Delete(t.Context(), "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// testPools: an autoscaler scales a pool through the scale subresource, in both versions.
// It observes CRD-185, CRD-186 and CRD-187 of docs/requirements.md.
func testPools(t *testing.T, s *server) {
	ctx := t.Context()
	if err := s.apply(ctx, "{apiVersion: fairlead.dev/v1alpha1, kind: TunnelPool, metadata: {name: p, namespace: default}, spec: {replicas: 2, agentPort: 9132}}"); err != nil {
		t.Fatal(err)
	}
	for i, version := range []string{"v1alpha1", "v1beta1"} {
		pools := s.resource(version, "tunnelpools", "default")
		if _, err := pools.Patch(ctx, "p", types.MergePatchType, fmt.Appendf(nil, `{"spec": {"replicas": %d}}`, i+5), metav1.PatchOptions{}, "scale"); err != nil {
			t.Fatal(err)
		}
		pool, err := pools.Get(ctx, "p", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if n, _, err := unstructured.NestedInt64(pool.Object, "spec", "replicas"); n != int64(i+5) || err != nil {
			t.Errorf("%s: %d replicas, %v", version, n, err)
		}
	}
}
