// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// TestOperator follows an installation of the operator on a real API server. A dry run shows
// the differences. A second run changes nothing. Neither it nor a bundle's installation takes
// anything from the other. The CA that the operator writes survives. Definitions are deleted
// with objects of users in them only if the user says so.
func TestOperator(t *testing.T) {
	testutil.Limit(t, 3*time.Minute) // with eight busy loops
	cp := daemontest.TakeControlPlane(t)
	t.Setenv("KUBECONFIG", cp.Kubeconfig)
	cfg, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	dyn := dynamic.NewForConfigOrDie(cfg)
	step := func(w want, args ...string) {
		t.Helper()
		out, err, code := run(t, args[0], args[1:]...)
		if code != w.code || !strings.Contains(out, w.out) || !strings.Contains(err, w.err) {
			t.Errorf("%q: exit code %d, printed %q, error %q; want %+v", args, code, out, err, w)
		}
	}
	step(want{0, "+kind: CustomResourceDefinition", ""}, "install", "--operator", "--dry-run")
	step(want{0, "deployment.apps/fairlead-operator created (server dry run)", ""}, "install", "--operator", "--dry-run")
	step(want{0, "deployment.apps/fairlead-operator applied (client dry run)", ""}, "install", "--operator", "--dry-run=client")
	if _, err := dyn.Resource(definitions).Get(t.Context(), "bundles.fairlead.dev", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("a dry run has made the definition: %v", err)
	}
	step(want{0, "customresourcedefinition.apiextensions.k8s.io/bundles.fairlead.dev created\n", "Installing the operator into"}, "install", "--operator", "--wait=false")
	step(want{0, "deployment.apps/my-scheduler created\n", ""}, "install", "--wait=false")
	testCASurvives(t, dyn)
	out, _, _ := run(t, "install", "--operator", "--wait=false")
	if strings.Count(out, "unchanged") != strings.Count(out, "\n") || out == "" {
		t.Errorf("a second run has changed something:\n%s", out)
	}
	runOut(t, want{1, "deployment.apps/fairlead-operator unchanged", "not rolled out"}, "install", "--operator")
	testWebhookSecret(t, cp)

	makeBundle(t, dyn)
	step(want{1, "", "Bundle default\nhint: keep them"}, "uninstall", "--operator", "--yes")
	step(want{1, "", "Bundle default\nhint: keep them"}, "uninstall", "--operator", "--yes", "--ignore-preflight-errors=all")
	step(want{1, "", "--custom-resources needs --operator"}, "uninstall", "--custom-resources=keep")
	step(want{0, "deployment.apps/fairlead-operator deleted\n", ""}, "uninstall", "--operator", "--yes", "--wait=false", "--custom-resources=keep")
	bundles := definitions.GroupVersion().WithResource("bundles")
	bundles.Group, bundles.Version = "fairlead.dev", "v1beta1"
	if _, err := dyn.Resource(bundles).Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("the Bundle was kept: %v", err)
	}
	if _, err := cp.Client.CoreV1().Secrets(operator.DefaultNamespace).Get(t.Context(), operator.WebhookSecret, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the webhook's Secret is left: %v", err)
	}
	if _, err := cp.Client.AppsV1().Deployments("kube-system").Get(t.Context(), "my-scheduler", metav1.GetOptions{}); err != nil {
		t.Errorf("the bundle's objects are the bundle's: %v", err)
	}
	step(want{0, "customresourcedefinition.apiextensions.k8s.io/schedulerprofiles.fairlead.dev unchanged\n", ""}, "install", "--operator", "--wait=false", "--operator-namespace=kube-system")
	finalizers(t, dyn, `["fairlead.dev/uninstall"]`)
	step(want{1, "", "the operator has to end the deletion of Bundle default"}, "uninstall", "--operator", "--yes", "--wait=false", "--custom-resources=delete", "--ignore-preflight-errors=all")
	if _, err := cp.Client.AppsV1().Deployments("kube-system").Get(t.Context(), operator.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("the operator is gone, and the Bundle waits for it: %v", err)
	}
	finalizers(t, dyn, `["example.com/hold"]`) // so the definition is not gone at once
	step(want{0, "customresourcedefinition.apiextensions.k8s.io/bundles.fairlead.dev deleted\n", "Bundle default"}, "uninstall", "--operator", "--yes", "--wait=false", "--custom-resources=delete")
	step(want{0, "", "Nothing is installed"}, "uninstall", "--operator", "--yes")
	finalizers(t, dyn, "null")
}

// finalizers sets those of the Bundle.
func finalizers(t *testing.T, dyn dynamic.Interface, list string) {
	t.Helper()
	bundles := dyn.Resource(schema.GroupVersionResource{Group: "fairlead.dev", Version: "v1beta1", Resource: "bundles"})
	if _, err := bundles.Patch(t.Context(), "default", types.MergePatchType, []byte(`{"metadata": {"finalizers": `+list+`}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// testCASurvives: what the operator writes into the definitions is not removed by another
// installation of the same definitions.
func testCASurvives(t *testing.T, dyn dynamic.Interface) {
	t.Helper()
	pair, err := pki.NewCA(pki.FromBundle(v1alpha1.New()), "ca", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	ca, err := json.Marshal(map[string]any{"spec": map[string]any{"conversion": map[string]any{"webhook": map[string]any{"clientConfig": map[string]any{"caBundle": pair.CertPEM()}}}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = dyn.Resource(definitions).Patch(t.Context(), "bundles.fairlead.dev", "application/merge-patch+json", ca, metav1.PatchOptions{FieldManager: "fairlead-operator-webhook"})
	if err != nil {
		t.Fatal(err)
	}
	if _, errOut, code := run(t, "install", "--operator", "--wait=false", "--operator-replicas=3"); code != 0 {
		t.Fatal(errOut)
	}
	if _, errOut, code := run(t, "install", "--operator", "--wait=false"); code != 0 {
		t.Fatal(errOut)
	}
	crd, err := dyn.Resource(definitions).Get(t.Context(), "bundles.fairlead.dev", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := unstructured.NestedString(crd.Object, "spec", "conversion", "webhook", "clientConfig", "caBundle"); got == "" {
		t.Errorf("the CA is gone from the definition: %v", err)
	}
}

// testWebhookSecret makes the Secret as the operator does.
func testWebhookSecret(t *testing.T, cp *daemontest.ControlPlane) {
	t.Helper()
	secret := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": operator.WebhookSecret, "namespace": operator.DefaultNamespace},
	}}
	cfg, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	secrets := dynamic.NewForConfigOrDie(cfg).Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"})
	if _, err := secrets.Namespace(operator.DefaultNamespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func makeBundle(t *testing.T, dyn dynamic.Interface) {
	t.Helper()
	bundles := schema.GroupVersionResource{Group: "fairlead.dev", Version: "v1beta1", Resource: "bundles"}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "fairlead.dev/v1beta1", "kind": "Bundle", "metadata": map[string]any{"name": "default"}, "spec": map[string]any{},
	}}
	if _, err := dyn.Resource(bundles).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestOperatorFlags: flags that would have no effect are refused.
func TestOperatorFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bundle.yaml")
	if err := os.WriteFile(file, []byte(bundletest.File("scheduler: {replicas: 3}")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		args []string
		want want
	}{
		{[]string{"install", "--operator", "-f", file}, want{1, "", "kubectl apply -f"}},
		{[]string{"install", "--operator-replicas=1"}, want{1, "", "--operator-replicas needs --operator"}},
		{[]string{"install", "--operator", "--operator-replicas=0", "--dry-run=client"}, want{1, "", "run at least 1"}},
		{[]string{"install", "--operator", "--operator-namespace=A", "--dry-run=client"}, want{1, "", `namespace "A"`}},
		{[]string{"uninstall", "--operator", "--custom-resources=all"}, want{1, "", "choose refuse, keep or delete"}},
	} {
		out, err, code := run(t, step.args[0], step.args[1:]...)
		step.want.check(t, out, err, code)
	}
}

// TestOperatorOnOldAPIServer: the command changes nothing on an API server that is too old for the operator.
func TestOperatorOnOldAPIServer(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.Method+" "+r.URL.Path)
		answer := map[string]string{
			"/version": `{"major": "1", "minor": "30", "gitVersion": "v1.30.4"}`, "/api": `{"kind": "APIVersions", "versions": ["v1"]}`,
		}[r.URL.Path]
		if answer == "" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	config := clientcmdapi.NewConfig()
	config.Clusters["old"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["old"] = &clientcmdapi.Context{Cluster: "old"}
	config.CurrentContext = "old"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", path)
	for _, more := range [][]string{nil, {"--dry-run"}} {
		out, err, code := run(t, "install", append([]string{"--operator"}, more...)...)
		if code != 1 || out != "" || !strings.Contains(err, "nothing was changed") || !strings.Contains(err, "v1.30.4") || !strings.Contains(err, "hint: ") {
			t.Errorf("%q: exit code %d, printed %q, error %q", more, code, out, err)
		}
	}
	for _, request := range asked {
		if !strings.HasPrefix(request, http.MethodGet+" ") {
			t.Errorf("the command sent %s", request)
		}
	}
}
