// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/crd/migrate"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// testMigrate rewrites objects, with what may happen meanwhile.
// It observes CRD-21, VER-45, VER-46, VER-47 and VER-48 of docs/requirements.md.
// It also observes API-50 and API-64 of docs/requirements.md.
// It also observes OLD-54, OLD-71 and OLD-72 of docs/requirements.md.
func (e *env) testMigrate(t *testing.T) {
	for name, test := range map[string]func(*env, *testing.T){
		"every object":          (*env).migrateAll,
		"server-side apply":     (*env).migrateApply,
		"interrupted":           (*env).migrateInterrupted,
		"object that resists":   (*env).migrateRefused,
		"requests that stall":   (*env).migrateStalled,
		"storage version moves": (*env).migrateMoving,
		"without permissions":   (*env).migrateForbidden,
		"loses data":            (*env).migrateLossy,
		"nothing to migrate":    (*env).migrateNothing,
		"by the controller":     (*env).migrateController,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "every object" && name != "nothing to migrate" {
				testutil.Full(t, "a further case of a migration")
			}
			test(e, t)
		})
	}
}

var plurals atomic.Int32

// stored makes a definition with objects in v1beta1, whose storage version is then v1, and
// which serves v1 only. It returns its name.
func (e *env) stored(t *testing.T, objects int) *crd.Definition {
	t.Helper()
	c := &testCase{File: "crontabs-versions.yaml", Index: 900 + int(plurals.Add(1)), Set: map[string]any{
		"spec.conversion":        map[string]any{"strategy": "None"},
		"spec.versions.1.schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{"hostPort": map[string]any{"type": "string"}}}},
	}}
	d := c.Definition(t, nil)
	if a := e.do(t, http.MethodPost, definitionsPath, d.Document.Raw); a.status != nil {
		t.Fatal(a.status)
	}
	e.established(t, d.Name)
	for i := range objects {
		body := c.Body(d, objectCase{}, i, map[string]any{"hostPort": "localhost:1234"})
		path := url(d, body, "", "fieldManager=old")
		if a := e.served(t, d, http.MethodPost, path, body); a.status != nil {
			t.Fatal(a.status)
		}
	}
	e.change(t, d.Name, func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Versions[0].Storage, d.Spec.Versions[1].Storage = false, true
		d.Spec.Versions[0].Served = false
	})
	if objects == 0 {
		return d
	}
	// The API server writes in the new version from now on; a little later it knows that.
	daemontest.Eventually(t, bound, func() error {
		body := strings.Replace(string(c.Body(d, objectCase{}, objects, map[string]any{"hostPort": "a:1"})), "v1beta1", "v1", 1)
		name := fmt.Sprintf("o%d", objects)
		if a := e.do(t, http.MethodPost, url(d, []byte(body), ""), []byte(body)); a.status != nil {
			return errors.New(a.status.Message)
		}
		version := e.versions(t, d)[name]
		if a := e.do(t, http.MethodDelete, url(d, []byte(body), name), nil); a.status != nil {
			t.Fatal(a.status)
		}
		if version != d.Spec.Group+"/v1" {
			return fmt.Errorf("the API server writes %s", version)
		}
		return nil
	})
	return d
}

func (e *env) change(t *testing.T, name string, edit func(*apiextensionsv1.CustomResourceDefinition)) {
	t.Helper()
	daemontest.Eventually(t, bound, func() error {
		d, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		edit(d)
		_, err = e.crds.ApiextensionsV1().CustomResourceDefinitions().Update(t.Context(), d, metav1.UpdateOptions{})
		return err
	})
}

// versions are the apiVersions in etcd by name.
func (e *env) versions(t *testing.T, d *crd.Definition) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, u := range e.etcd(t, d.Spec.Group+"/"+d.Spec.Names.Plural+"/") {
		out[name] = u.GetAPIVersion()
	}
	return out
}

// count says how many objects are stored in a version.
func (e *env) count(t *testing.T, d *crd.Definition, version string) (n int) {
	t.Helper()
	for _, v := range e.versions(t, d) {
		if v == d.Spec.Group+"/"+version {
			n++
		}
	}
	return n
}

func (e *env) wantStoredVersions(t *testing.T, d *crd.Definition, want ...string) {
	t.Helper()
	got, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), d.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want, got.Status.StoredVersions); diff != "" {
		t.Errorf("status.storedVersions (-want +got):\n%s", diff)
	}
}

func (e *env) migrator(t *testing.T, o migrate.Options) *migrate.Migrator {
	t.Helper()
	return migrateAs(t, e.cfg, o)
}

func migrateAs(t *testing.T, cfg *rest.Config, o migrate.Options) *migrate.Migrator {
	t.Helper()
	if o.Method == "" {
		o.Method = migrate.Patch
	}
	o.Settle, o.QPS = -1, 1000
	m, err := migrate.New(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// migrateAll proves by etcd's contents that a dry run changes nothing and that a run
// rewrites every object of several pages, drops old managedFields and then the old version.
func (e *env) migrateAll(t *testing.T) {
	d := e.stored(t, 120)
	r, err := e.migrator(t, migrate.Options{DryRun: true, PageSize: 50}).Run(t.Context(), d.Name)
	if err != nil || r.Objects != 120 {
		t.Fatalf("dry run: %+v, %v", r, err)
	}
	if n := e.count(t, d, "v1beta1"); n != 120 {
		t.Fatalf("after the dry run %d objects are stored in v1beta1, want 120", n)
	}
	e.wantStoredVersions(t, d, "v1beta1", "v1")

	r, err = e.migrator(t, migrate.Options{PageSize: 50}).Run(t.Context(), d.Name)
	if err != nil {
		t.Fatal(err)
	}
	want := &migrate.Result{Name: d.Name, Storage: "v1", Stored: []string{"v1beta1", "v1"}, Dropped: []string{"v1beta1"}, Method: migrate.Patch, Objects: 120, Rewritten: 120, Cleaned: 120}
	if diff := gocmp.Diff(want, r); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if n := e.count(t, d, "v1"); n != 120 {
		t.Errorf("%d objects are stored in v1, want 120", n)
	}
	for name, u := range e.etcd(t, d.Spec.Group+"/crontabs/") {
		fields := u.GetManagedFields()
		if len(fields) != 1 || fields[0].APIVersion != d.Spec.Group+"/v1" {
			t.Fatalf("managedFields of %s are %+v", name, fields)
		}
		if u.Object["hostPort"] != "localhost:1234" {
			t.Fatalf("%s has lost its data: %v", name, u.Object)
		}
	}
	e.wantStoredVersions(t, d, "v1")

	// Now the API server accepts that the version goes.
	e.change(t, d.Name, func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions = d.Spec.Versions[1:] })
	if err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), d.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// migrateApply proves that server-side apply works when the old version is gone: of an object that has kept no entry of
// managedFields, any field can be applied, and of one that has kept an entry of v1, its manager still owns its fields.
func (e *env) migrateApply(t *testing.T) {
	d := e.stored(t, 3)
	const o0, o1, o2 = "o0", "o1", "o2"
	apply := func(name, manager, hostPort string) reply {
		t.Helper()
		body := fmt.Sprintf(`{"apiVersion": "%s/v1", "kind": "CronTab", "metadata": {"name": %q}, "hostPort": %q}`, d.Spec.Group, name, hostPort)
		return e.raw(t, http.MethodPatch, collection(d, "v1")+"/"+name+"?fieldManager="+manager, "application/apply-patch+yaml", jsonType, body)
	}
	if r := apply(o1, "current", "localhost:1234"); r.code != http.StatusOK {
		t.Fatalf("apply before the migration: %d %s", r.code, r.body)
	}
	r, err := e.migrator(t, migrate.Options{}).Run(t.Context(), d.Name)
	if err != nil || r.Cleaned != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	e.change(t, d.Name, func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions = d.Spec.Versions[1:] })
	e.eventually(t, collection(d, "v1beta1"), http.StatusNotFound)
	// Once more without any entry, as a client that empties the list leaves an object: all that it has belongs to an unknown manager.
	e.merge(t, collection(d, "v1")+"/"+o2, `{"metadata": {"managedFields": [{}]}}`)
	for _, step := range []struct {
		name, manager, hostPort string
		code                    int
		says                    string
	}{
		{o0, "gitops", "localhost:1", http.StatusOK, "localhost:1"},
		{o0, "gitops", "localhost:2", http.StatusOK, "localhost:2"},
		{o1, "current", "localhost:1", http.StatusOK, "localhost:1"},
		{o1, "gitops", "localhost:2", http.StatusConflict, `conflict with \"current\"`},
		{o2, "gitops", "localhost:1234", http.StatusOK, "localhost:1234"},
		{o2, "other", "localhost:2", http.StatusConflict, `before-first-apply`},
	} {
		r := apply(step.name, step.manager, step.hostPort)
		if r.code != step.code {
			t.Errorf("%+v: %d %s", step, r.code, r.body)
		}
		has(t, fmt.Sprintf("the answer to %+v", step), r.body, step.says)
	}
}

// migrateInterrupted proves that a run that ends early drops nothing, and that the next one
// writes only what is left.
func (e *env) migrateInterrupted(t *testing.T) {
	d := e.stored(t, 60)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := e.migrator(t, migrate.Options{PageSize: 20, Progress: func(migrate.Result) { cancel() }}).Run(ctx, d.Name)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "run the command again") {
		t.Fatalf("error %v", err)
	}
	done := e.count(t, d, "v1")
	if done < 20 || done == 60 {
		t.Fatalf("%d objects were rewritten before the interruption", done)
	}
	e.wantStoredVersions(t, d, "v1beta1", "v1")
	r, err := e.migrator(t, migrate.Options{PageSize: 20}).Run(t.Context(), d.Name)
	if err != nil {
		t.Fatal(err)
	}
	if r.Objects != 60 || r.Rewritten != 60-done || e.count(t, d, "v1") != 60 {
		t.Errorf("the second run saw %d and rewrote %d objects after %d, and v1 has %d", r.Objects, r.Rewritten, done, e.count(t, d, "v1"))
	}
	e.wantStoredVersions(t, d, "v1")
}

// migrateRefused proves that one object that cannot be rewritten keeps the old version in
// status.storedVersions, that the others are rewritten, and that the object is named.
func (e *env) migrateRefused(t *testing.T) {
	d := e.stored(t, 5)
	policies := e.Client.AdmissionregistrationV1()
	fail := admissionregistrationv1.Fail
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "resist"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: &fail,
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{d.Spec.Group}, APIVersions: []string{"*"}, Resources: []string{"crontabs"}}}}}},
		Validations: []admissionregistrationv1.Validation{{Expression: "object.metadata.name != 'o3'", Message: "o3 may not be written"}},
	}}
	if _, err := policies.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "resist"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: "resist", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}}
	if _, err := policies.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	dry := e.migrator(t, migrate.Options{DryRun: true})
	daemontest.Eventually(t, bound, func() error { // until the API server enforces the policy
		if r, err := dry.Run(t.Context(), d.Name); err == nil || len(r.Failed) != 1 {
			return fmt.Errorf("dry run: %+v, %w", r, err)
		}
		return nil
	})
	r, err := e.migrator(t, migrate.Options{}).Run(t.Context(), d.Name)
	if err == nil || len(r.Failed) != 1 || r.Failed[0].Name != "o3" || r.Failed[0].Namespace != "default" || !strings.Contains(r.Failed[0].Reason, "o3 may not be written") {
		t.Fatalf("result %+v, error %v", r, err)
	}
	if n := e.count(t, d, "v1"); n != 4 {
		t.Errorf("%d objects are stored in v1, want 4", n)
	}
	e.wantStoredVersions(t, d, "v1beta1", "v1")
}

// migrateLossy proves that fields that only the old version has, and that nothing converts, are not removed unless the user
// accepts that: clients of the old version read them until then.
func (e *env) migrateLossy(t *testing.T) {
	d := e.stored(t, 2)
	e.change(t, d.Name, func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Versions[0].Served = true
		delete(d.Spec.Versions[1].Schema.OpenAPIV3Schema.Properties, "hostPort")
		d.Spec.Versions[1].Schema.OpenAPIV3Schema.Properties["host"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	})
	hostPorts := func() (n int) {
		t.Helper()
		for _, u := range e.etcd(t, d.Spec.Group+"/"+d.Spec.Names.Plural+"/") {
			if u.Object["hostPort"] == "localhost:1234" {
				n++
			}
		}
		return n
	}
	for _, o := range []migrate.Options{{}, {DryRun: true}} {
		if _, err := e.migrator(t, o).Run(t.Context(), d.Name); err == nil || !strings.Contains(err.Error(), "v1 lacks .hostPort") || !strings.Contains(err.Error(), "--accept-data-loss") {
			t.Errorf("%+v: error %v", o, err)
		}
	}
	if n := hostPorts(); n != 2 {
		t.Errorf("%d objects have their data, want 2", n)
	}
	e.wantStoredVersions(t, d, "v1beta1", "v1")
	if _, err := e.migrator(t, migrate.Options{AcceptLoss: true}).Run(t.Context(), d.Name); err != nil {
		t.Error(err)
	}
	if n := hostPorts(); n != 0 {
		t.Errorf("%d objects still have their data, so that nothing was to be refused", n)
	}
	e.wantStoredVersions(t, d, "v1")
}

// migrateMoving proves that nothing is dropped if the storage version changes meanwhile.
func (e *env) migrateMoving(t *testing.T) {
	d := e.stored(t, 4)
	moved := false
	_, err := e.migrator(t, migrate.Options{PageSize: 2, Progress: func(migrate.Result) {
		if moved {
			return
		}
		moved = true
		e.change(t, d.Name, func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Spec.Versions[0].Storage, d.Spec.Versions[1].Storage = true, false
		})
	}}).Run(t.Context(), d.Name)
	if err == nil || !strings.Contains(err.Error(), "the storage version changed from v1 to v1beta1") {
		t.Errorf("error %v", err)
	}
	e.wantStoredVersions(t, d, "v1beta1", "v1")
}

// migrateForbidden proves that missing permissions are listed before anything is written.
func (e *env) migrateForbidden(t *testing.T) {
	d := e.stored(t, 1)
	body, err := json.Marshal(map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": "reads-crds"},
		"rules": []any{map[string]any{"apiGroups": []string{"apiextensions.k8s.io", d.Spec.Group}, "resources": []string{"*"}, "verbs": []string{"get", "list"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		"clusterroles":        string(body),
		"clusterrolebindings": `{"metadata":{"name":"reads-crds"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"reads-crds"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"reader"}]}`,
	} {
		if a := e.do(t, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/"+path, []byte(text)); a.status != nil {
			t.Fatal(a.status)
		}
	}
	cfg := rest.CopyConfig(e.cfg)
	cfg.Impersonate.UserName = "reader"
	daemontest.Eventually(t, bound, func() error { // until the API server knows the role
		_, err := migrateAs(t, cfg, migrate.Options{}).Run(t.Context(), d.Name)
		if !errors.Is(err, migrate.ErrForbidden) || strings.Contains(err.Error(), "list crontabs") {
			return fmt.Errorf("error %w", err)
		}
		for _, right := range []string{"patch crontabs." + d.Spec.Group, "patch customresourcedefinitions.apiextensions.k8s.io/status"} {
			if !strings.Contains(err.Error(), right) {
				return fmt.Errorf("error %w, want it to name %q", err, right)
			}
		}
		return nil
	})
	if n := e.count(t, d, "v1beta1"); n != 1 {
		t.Errorf("%d objects are stored in v1beta1, want 1", n)
	}
}

// migrateNothing proves that a definition without old versions is left alone, that a name
// that does not exist gets a hint, and that only definitions with old versions are pending.
func (e *env) migrateNothing(t *testing.T) {
	d := e.stored(t, 0)
	m := e.migrator(t, migrate.Options{})
	pending, err := m.Pending(t.Context())
	if err != nil || !contains(pending, d.Name) {
		t.Fatalf("pending %v, %v", pending, err)
	}
	if r, err := m.Run(t.Context(), d.Name); err != nil || r.Objects != 0 || len(r.Dropped) != 1 {
		t.Fatalf("result %+v, %v", r, err)
	}
	if r, err := m.Run(t.Context(), d.Name); err != nil || r.Method != "" || r.Dropped != nil {
		t.Errorf("the second run: %+v, %v", r, err)
	}
	if pending, err = m.Pending(t.Context()); err != nil || contains(pending, d.Name) {
		t.Errorf("pending %v, %v", pending, err)
	}
	if _, err := m.Run(t.Context(), "ct"); err == nil || !strings.Contains(err.Error(), "did you mean crontabs.") {
		t.Errorf("error %v", err)
	}
}

func contains(all []string, s string) bool {
	for _, a := range all {
		if a == s {
			return true
		}
	}
	return false
}

// migrateController proves that the storage version migrator of kube-controller-manager
// does the work where it runs, and that without it the objects are patched.
func (e *env) migrateController(t *testing.T) {
	d := e.stored(t, 3)
	r, err := e.migrator(t, migrate.Options{Method: migrate.Auto, ControllerWait: 1}).Run(t.Context(), d.Name)
	if err != nil || r.Method != migrate.Patch || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "no controller took up") {
		t.Fatalf("without the controller: %+v, %v", r, err)
	}
	d = e.stored(t, 3)
	daemontest.Start(t, nil, daemontest.Components(t, "kube-controller-manager")["kube-controller-manager"],
		"--kubeconfig="+e.Kubeconfig, "--leader-elect=false", "--secure-port=0", "--feature-gates=StorageVersionMigrator=true",
		"--controllers=storage-version-migrator-controller,garbage-collector-controller", "--use-service-account-credentials=false")
	r, err = e.migrator(t, migrate.Options{Method: migrate.Controller, ControllerWait: 4 * bound}).Run(t.Context(), d.Name)
	if err != nil || r.Method != migrate.Controller || r.Cleaned != 3 {
		t.Fatalf("with the controller: %+v, %v", r, err)
	}
	if n := e.count(t, d, "v1"); n != 3 {
		t.Errorf("%d objects are stored in v1, want 3", n)
	}
	e.wantStoredVersions(t, d, "v1")
	if got := e.condition(t, d.Name, apiextensionsv1.StorageMigrating); got != "False MigrationSucceeded" {
		t.Errorf("StorageMigrating is %q", got)
	}
	if a := e.do(t, http.MethodGet, "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations", nil); a.object == nil || len(a.object.Object["items"].([]any)) != 0 {
		t.Errorf("StorageVersionMigrations are left: %+v", a)
	}
}
