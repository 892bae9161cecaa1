// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/crds"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	operatorbundle "github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/operator"
)

const poolsDefinition = "tunnelpools.fairlead.dev"

// TestDefinitions: with the rights that are rendered, and no others, the operator keeps the webhook
// in the definitions, and rewrites objects of old versions.
func TestDefinitions(t *testing.T) {
	testutil.Full(t, "takes more than ten seconds, with kubectl")
	daemontest.Beside(t)
	hook := ""
	e, refused := installed(t, func(o *operator.Options) { hook = o.WebhookURL })
	e.webhookNamed(hook)
	t.Run("restored", func(t *testing.T) { e.T = t; testRestored(e, hook) })
	t.Run("migrated", func(t *testing.T) { e.T = t; testMigrated(e) })
	t.Run("refused", func(t *testing.T) { e.T = t; testRefused(e) })
	t.Run("cleaned", func(t *testing.T) { e.T = t; testCleaned(e) })
	e.T = t
	if list := refused.take(); len(list) > 0 {
		t.Errorf("the API server has refused\n%s", strings.Join(list, "\n"))
	}
}

// TestMissingDefinition: an operator that starts while one definition is missing, which it may not create, converts the
// objects of the others for as long as that takes, and does its work as soon as the definition is there.
// It observes VER-68 of docs/requirements.md.
func TestMissingDefinition(t *testing.T) {
	testutil.Full(t, "an outage that TestInstalled does not have")
	daemontest.Beside(t)
	e, _ := installed(t)
	if _, err := e.bundles.Create(t.Context(), object("Bundle", "", "default", map[string]any{"managementPolicy": "Observe"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.reconciled(v1beta1.ReasonDrift)
	e.stop()
	const name = "schedulerprofiles.fairlead.dev"
	definitions := apiextensions.NewForConfigOrDie(e.cfg).ApiextensionsV1().CustomResourceDefinitions()
	if err := definitions.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, bound, func() error {
		if _, err := definitions.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the definition is not gone: %w", err)
		}
		return nil
	})
	health := "127.0.0.1:" + daemontest.Ports(t, 1)[0]
	runWith(e, e.operator, func(o *operator.Options) { o.HealthAddress = health }) // the webhook is at another address, too
	testutil.Eventually(t, bound, func() error {
		if status, text := get(t, nil, "http://"+health+"/readyz", ""); status != http.StatusOK {
			return fmt.Errorf("/readyz: %d: %s", status, text)
		}
		_, err := e.old.Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	all, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if d.Name == name {
			_, err = definitions.Create(t.Context(), d, metav1.CreateOptions{})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, bound, func() error {
		_, err := e.kind("schedulerprofiles").Create(t.Context(), object("SchedulerProfile", "", "p", map[string]any{"schedulerName": "p", "strategy": "Standard"}), metav1.CreateOptions{})
		return err
	})
	e.condition(e.kind("schedulerprofiles"), "p", v1beta1.ProfileAccepted, v1beta1.ReasonAccepted)
}

func (e *env) definition(name string) *apiextensionsv1.CustomResourceDefinition {
	e.Helper()
	d, err := apiextensions.NewForConfigOrDie(e.cfg).ApiextensionsV1().CustomResourceDefinitions().Get(e.Context(), name, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	return d
}

// webhookNamed waits until the definitions name a webhook, with a CA.
func (e *env) webhookNamed(url string) {
	e.Helper()
	testutil.Eventually(e.T, bound, func() error {
		for _, name := range []string{"bundles.fairlead.dev", poolsDefinition} {
			c := e.definition(name).Spec.Conversion
			if c == nil || c.Webhook == nil || c.Webhook.ClientConfig == nil || c.Webhook.ClientConfig.URL == nil || *c.Webhook.ClientConfig.URL != url || len(c.Webhook.ClientConfig.CABundle) == 0 {
				return fmt.Errorf("%s has the conversion %+v", name, c)
			}
		}
		return nil
	})
}

// definitionFile has a definition of two versions as it is offered for use without the operator, and bareFile the same without
// the webhook, as older releases had it.
const definitionFile = "../apis/fairlead/crds/fairlead.dev_tunnelpools.yaml"

func bareFile(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(definitionFile)
	if err != nil {
		t.Fatal(err)
	}
	d := map[string]any{}
	if err := yaml.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	unstructured.RemoveNestedField(d, "spec", "conversion")
	if data, err = yaml.Marshal(d); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "bare.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// kubectl runs the pinned kubectl as an administrator.
func (e *env) kubectl(args ...string) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), bound)
	defer cancel()
	args = append([]string{"--kubeconfig=" + e.Kubeconfig, "--cache-dir=" + e.TempDir()}, args...)
	if out, err := exec.CommandContext(ctx, daemontest.Components(e.T, "kubectl")["kubectl"], args...).CombinedOutput(); err != nil {
		e.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// testRestored: kubectl takes the webhook away with a file that names none or another one, or leaves it there, and
// the operator has it back in seconds.
func testRestored(e *env, hook string) {
	bare := bareFile(e.T)
	for _, args := range [][]string{
		{"replace", "-f", bare}, {"apply", "--server-side", "--force-conflicts", "-f", bare}, {"apply", "-f", bare},
		{"replace", "-f", definitionFile}, {"replace", "-f", bare},
	} {
		began := time.Now()
		e.kubectl(args...)
		e.webhookNamed(hook)
		if took := time.Since(began); took > 15*time.Second {
			e.Errorf("kubectl %v: the webhook was back after %v", args, took)
		}
	}
	e.kubectl("patch", "crd", poolsDefinition, "--type=merge", "-p", `{"spec": {"conversion": {"strategy": "None", "webhook": null}}}`)
	e.webhookNamed(hook)
}

// TestReapplied: the file of a definition that is applied again never has the API server remove fields, with and without the
// operator: until the operator has put its CA back, requests in the old version are refused.
func TestReapplied(t *testing.T) {
	testutil.Full(t, "takes more than ten seconds, with kubectl")
	daemontest.Beside(t)
	hook := ""
	e, _ := installed(t, func(o *operator.Options) { hook = o.WebhookURL })
	e.webhookNamed(hook)
	old := dynamic.NewForConfigOrDie(e.cfg).Resource(schema.GroupVersionResource{Group: "fairlead.dev", Version: "v1alpha1", Resource: "tunnelpools"}).Namespace("default")
	pools := e.kind("tunnelpools").Namespace("default")
	const identifiers = "ipv4=10.0.0.1"
	create := func(name string) error {
		o := object("TunnelPool", "default", name, map[string]any{"hostNetwork": true, "identifiers": identifiers})
		o.SetAPIVersion("fairlead.dev/v1alpha1")
		_, err := old.Create(t.Context(), o, metav1.CreateOptions{})
		return err
	}
	whole := func(name string) {
		t.Helper()
		pool, err := pools.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if list, _, _ := unstructured.NestedSlice(pool.Object, "spec", "identifiers"); len(list) != 1 {
			t.Errorf("%s has lost fields: %v", name, pool.Object)
		}
	}
	testutil.Eventually(t, bound, func() error { return create("before") })
	whole("before")

	e.stop()
	e.kubectl("replace", "-f", definitionFile)
	// The API server takes the change over some time later. Then it refuses all requests.
	n, refused := 0, 0
	testutil.Eventually(t, bound, func() error {
		n++
		name := fmt.Sprintf("between-%d", n)
		switch err := create(name); {
		case err == nil:
			refused = 0
			whole(name)
		case strings.Contains(err.Error(), "webhook"):
			refused++
		default:
			t.Fatalf("refused for another reason: %v", err)
		}
		if refused < 20 {
			return fmt.Errorf("%d requests in a row were refused while nothing converts", refused)
		}
		return nil
	})
	whole("before")
	if _, err := pools.Create(t.Context(), object("TunnelPool", "default", "new", map[string]any{"hostNetwork": "Enabled"}), metav1.CreateOptions{}); err != nil {
		t.Errorf("clients of the current version need no webhook: %v", err)
	}

	runWith(e, e.operator, func(o *operator.Options) { hook = o.WebhookURL })
	e.webhookNamed(hook)
	testutil.Eventually(t, bound, func() error { return create("after") })
	whole("after")
	testReappliedService(e)
	testReappliedElsewhere(e)
}

// testReappliedService: of an operator that a Service leads to, as by default, kubectl apply of the file changes nothing.
func testReappliedService(e *env) {
	e.Helper()
	e.stop()
	runWith(e, e.operator, func(o *operator.Options) {
		o.WebhookURL, o.WebhookService, o.WebhookNames = "", operatorbundle.Name, nil
	})
	var before *apiextensionsv1.CustomResourceConversion
	testutil.Eventually(e.T, bound, func() error {
		before = e.definition(poolsDefinition).Spec.Conversion
		if c := before.Webhook.ClientConfig; c.Service == nil || len(c.CABundle) == 0 {
			return fmt.Errorf("the definition has the conversion %+v", c)
		}
		return nil
	})
	e.stop() // what kubectl removes is not put back
	for _, verb := range [][]string{{"apply", "--server-side", "--force-conflicts"}, {"apply"}, {"apply"}} {
		e.kubectl(append(verb, "-f", definitionFile)...)
		if diff := cmp.Diff(before, e.definition(poolsDefinition).Spec.Conversion); diff != "" {
			e.Errorf("kubectl %v has changed the conversion (-before +after):\n%s", verb, diff)
		}
	}
}

// testReappliedElsewhere: the file names a Service in the default namespace. Where the operator has another one, server-side apply is
// a conflict, and what client-side apply and forced ones write is put back in seconds.
func testReappliedElsewhere(e *env) {
	e.Helper()
	const elsewhere = "elsewhere"
	if _, err := e.client.CoreV1().Namespaces().Create(e.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: elsewhere}}, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	run := func() {
		runWith(e, e.cfg, func(o *operator.Options) {
			o.Namespace, o.WebhookURL, o.WebhookService, o.WebhookNames = elsewhere, "", operatorbundle.Name, nil
		})
	}
	service := func() *apiextensionsv1.ServiceReference {
		return e.definition(poolsDefinition).Spec.Conversion.Webhook.ClientConfig.Service
	}
	back := func() {
		e.Helper()
		testutil.Eventually(e.T, bound, func() error {
			c := e.definition(poolsDefinition).Spec.Conversion.Webhook.ClientConfig
			if c.Service == nil || c.Service.Namespace != elsewhere || len(c.CABundle) == 0 {
				return fmt.Errorf("the definition has the conversion %+v", c)
			}
			return nil
		})
	}
	run()
	back()
	kubectl := daemontest.Components(e.T, "kubectl")["kubectl"]
	out, err := exec.CommandContext(e.Context(), kubectl, "--kubeconfig="+e.Kubeconfig, "--cache-dir="+e.TempDir(), "apply", "--server-side", "-f", definitionFile).CombinedOutput()
	if err == nil || !strings.Contains(string(out), ".spec.conversion.webhook.clientConfig.service.namespace") {
		e.Errorf("kubectl apply --server-side: %v\n%s", err, out)
	}
	for _, verb := range [][]string{{"apply"}, {"apply", "--server-side", "--force-conflicts"}, {"replace"}} {
		e.stop()
		e.kubectl(append(verb, "-f", definitionFile)...)
		if got := service(); got == nil || got.Namespace != operatorbundle.DefaultNamespace {
			e.Errorf("kubectl %v has changed nothing, so this proves nothing: the Service is %+v", verb, got)
		}
		run()
		back()
		e.kubectl("patch", "crd", poolsDefinition, "--type=merge", "-p", `{"spec": {"conversion": {"webhook": {"clientConfig": {"service": {"namespace": "fairlead-system"}}}}}}`)
		back() // also while it runs
	}
	e.stop()
}

// testMigrated: objects in the old version are rewritten, the version leaves status.storedVersions,
// and reads in the storage version call the webhook no more.
func testMigrated(e *env) {
	n := e.storedOld()
	name := fmt.Sprintf("p%d", n)
	e.store("v1beta1")
	testutil.Eventually(e.T, 2*bound, func() error {
		if stored := e.definition(poolsDefinition).Status.StoredVersions; !slices.Equal(stored, []string{"v1beta1"}) {
			return fmt.Errorf("status.storedVersions is %v", stored)
		}
		return nil
	})
	if v := e.storedVersion(name); v != "fairlead.dev/v1beta1" {
		e.Errorf("%s is stored in %s", name, v)
	}
	pools := e.kind("tunnelpools").Namespace("default")
	reads := func() {
		e.Helper()
		list, err := pools.List(e.Context(), metav1.ListOptions{Limit: 500})
		if err != nil || len(list.Items) != n {
			e.Fatalf("%d pools, want %d: %v", len(list.Items), n, err)
		}
		pool, err := pools.Get(e.Context(), name, metav1.GetOptions{})
		if v, _, _ := unstructured.NestedString(pool.Object, "spec", "hostNetwork"); err != nil || v != "Enabled" {
			e.Fatalf("%v, %v", pool, err)
		}
	}
	// The API server may still convert what was rewritten, for its watches of the old version.
	testutil.Eventually(e.T, bound, func() error {
		before := e.conversions()
		for range 10 {
			reads()
		}
		if after := e.conversions(); after != before {
			return fmt.Errorf("reads in the storage version have called the webhook %v times", after-before)
		}
		return nil
	})
}

// store sets the storage version of pools.
func (e *env) store(version string) {
	e.Helper()
	client := apiextensions.NewForConfigOrDie(e.cfg).ApiextensionsV1().CustomResourceDefinitions()
	testutil.Eventually(e.T, bound, func() error {
		d := e.definition(poolsDefinition)
		for i := range d.Spec.Versions {
			d.Spec.Versions[i].Storage = d.Spec.Versions[i].Name == version
		}
		_, err := client.Update(e.Context(), d, metav1.UpdateOptions{})
		return err
	})
}

// storedOld makes v1alpha1 the storage version of pools, and creates pools until one of them is stored in it.
// They are named p and a number; the number of the last one is returned.
func (e *env) storedOld() (n int) {
	e.Helper()
	old := dynamic.NewForConfigOrDie(e.cfg).Resource(schema.GroupVersionResource{Group: "fairlead.dev", Version: "v1alpha1", Resource: "tunnelpools"}).Namespace("default")
	e.store("v1alpha1")
	testutil.Eventually(e.T, bound, func() error {
		n++
		o := object("TunnelPool", "default", fmt.Sprintf("p%d", n), map[string]any{"hostNetwork": true})
		o.SetAPIVersion("fairlead.dev/v1alpha1")
		if _, err := old.Create(e.Context(), o, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if v := e.storedVersion(o.GetName()); v != "fairlead.dev/v1alpha1" {
			return fmt.Errorf("stored in %s", v)
		}
		return nil
	})
	return n
}

// testRefused: an object that a policy keeps from being rewritten is named in a condition and an event, with
// the policy's reason. When the policy is gone, the migration goes on by itself.
func testRefused(e *env) {
	if _, err := e.bundles.Create(e.Context(), object("Bundle", "", "default", map[string]any{"managementPolicy": "Observe"}), metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	e.condition(e.bundles, "default", v1beta1.BundleStorageMigrated, v1beta1.ReasonMigrated)
	name := fmt.Sprintf("p%d", e.storedOld())
	policies, bindings := e.client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), e.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "frozen"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				ResourceNames: []string{name},
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"fairlead.dev"}, APIVersions: []string{"*"}, Resources: []string{"tunnelpools", "tunnelpools/status"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "this pool is frozen"}},
		},
	}
	if _, err := policies.Create(e.Context(), policy, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "frozen"},
		Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "frozen", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
	}
	if _, err := bindings.Create(e.Context(), binding, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	pools := e.kind("tunnelpools").Namespace("default")
	testutil.Eventually(e.T, bound, func() error {
		_, err := pools.Patch(e.Context(), name, types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("the policy has no effect yet")
		}
		return nil
	})
	e.store("v1beta1")
	c := e.condition(e.bundles, "default", v1beta1.BundleStorageMigrated, v1beta1.ReasonMigrationFailed)
	for _, want := range []string{"default/" + name, "this pool is frozen", poolsDefinition} {
		if !strings.Contains(c.Message, want) {
			e.Errorf("the condition lacks %q: %s", want, c.Message)
		}
	}
	e.event("Bundle", v1beta1.ReasonMigrationFailed, "default/"+name)
	if stored := e.definition(poolsDefinition).Status.StoredVersions; !slices.Contains(stored, "v1alpha1") {
		e.Errorf("status.storedVersions is %v although an object is stored in v1alpha1", stored)
	}
	if err := bindings.Delete(e.Context(), "frozen", metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
	e.condition(e.bundles, "default", v1beta1.BundleStorageMigrated, v1beta1.ReasonMigrated)
	if v := e.storedVersion(name); v != "fairlead.dev/v1beta1" {
		e.Errorf("%s is stored in %s", name, v)
	}
}

// testCleaned: when a version is not served any more, its managedFields go, although no object is stored in it.
func testCleaned(e *env) {
	pools := e.kind("tunnelpools").Namespace("default")
	written := func(version string) (names []string) {
		e.Helper()
		list, err := pools.List(e.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			e.Fatalf("%d pools, %v", len(list.Items), err)
		}
		for _, pool := range list.Items {
			if slices.ContainsFunc(pool.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.APIVersion == "fairlead.dev/"+version }) {
				names = append(names, pool.GetName())
			}
		}
		return names
	}
	if len(written("v1alpha1")) == 0 {
		e.Fatal("no client has written in v1alpha1")
	}
	client := apiextensions.NewForConfigOrDie(e.cfg).ApiextensionsV1().CustomResourceDefinitions()
	testutil.Eventually(e.T, bound, func() error {
		d := e.definition(poolsDefinition)
		for i := range d.Spec.Versions {
			d.Spec.Versions[i].Served = d.Spec.Versions[i].Name == "v1beta1"
		}
		_, err := client.Update(e.Context(), d, metav1.UpdateOptions{})
		return err
	})
	testutil.Eventually(e.T, bound, func() error {
		if names := written("v1alpha1"); len(names) > 0 {
			return fmt.Errorf("%v have managedFields of v1alpha1", names)
		}
		return nil
	})
}

// storedVersion is the apiVersion of a pool in etcd.
func (e *env) storedVersion(name string) string {
	e.Helper()
	key := base64.StdEncoding.EncodeToString([]byte("/registry/fairlead.dev/tunnelpools/default/" + name))
	response, err := http.Post(e.Etcd+"/v3/kv/range", "application/json", strings.NewReader(fmt.Sprintf(`{"key": %q}`, key)))
	if err != nil {
		e.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Kvs []struct{ Value []byte } `json:"kvs"`
	}
	var o metav1.TypeMeta
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || len(answer.Kvs) != 1 {
		e.Fatalf("%d objects, %v", len(answer.Kvs), err)
	}
	if err := json.Unmarshal(answer.Kvs[0].Value, &o); err != nil {
		e.Fatal(err)
	}
	return o.APIVersion
}

// conversions is how many requests the webhook has answered.
func (e *env) conversions() (n float64) {
	e.Helper()
	families, err := e.metrics.Gather()
	if err != nil {
		e.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "fairlead_conversion_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			n += m.GetCounter().GetValue()
		}
	}
	return n
}
