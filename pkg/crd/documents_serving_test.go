// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

const jsonType = "application/json"

// testDiscovery proves that discovery and status show the names of a definition, with the
// defaults of those that it leaves out.
// It observes CRD-02, CRD-03, CRD-04, CRD-05, CRD-06, CRD-07, CRD-08, CRD-11, CRD-12, CRD-20 and CRD-21 of docs/requirements.md.
func (e *env) testDiscovery(t *testing.T) {
	d := e.create(t, &testCase{Index: 400, Set: map[string]any{"spec.names.singular": nil}})
	list := get[metav1.APIResourceList](t, e, "/apis/"+d.Spec.Group+"/v1", jsonType)
	if len(list.APIResources) != 1 {
		t.Fatalf("resources %+v", list)
	}
	r := list.APIResources[0]
	r.StorageVersionHash, r.Verbs = "", nil
	if diff := gocmp.Diff(metav1.APIResource{Name: "crontabs", SingularName: "crontab", Kind: "CronTab", ShortNames: []string{"ct"}, Namespaced: true}, r); diff != "" {
		t.Errorf("discovery (-want +got):\n%s", diff)
	}
	if kind := get[metav1.TypeMeta](t, e, collection(d, "v1"), jsonType).Kind; kind != "CronTabList" {
		t.Errorf("the kind of lists is %s", kind)
	}
	live, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), d.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := apiextensionsv1.CustomResourceDefinitionNames{Plural: "crontabs", Singular: "crontab", ShortNames: []string{"ct"}, Kind: "CronTab", ListKind: "CronTabList"}
	if diff := gocmp.Diff(want, live.Status.AcceptedNames); diff != "" {
		t.Errorf("accepted names (-want +got):\n%s", diff)
	}
	if got := e.condition(t, d.Name, apiextensionsv1.NamesAccepted); got != "True NoConflicts" {
		t.Errorf("NamesAccepted is %q", got)
	}
	// Nothing in this version of Kubernetes sets the observed generation; the API server keeps what a client sets.
	e.merge(t, definitionsPath+"/"+d.Name+"/status", `{"status": {"observedGeneration": 1}}`)
	if live, err = e.crds.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), d.Name, metav1.GetOptions{}); err != nil || live.Status.ObservedGeneration != 1 {
		t.Errorf("observed generation %d, %v", live.Status.ObservedGeneration, err)
	}
	conflict := (&testCase{Index: 400, Set: map[string]any{"spec.names.plural": "tabs", "metadata.name": "tabs." + d.Spec.Group}}).Definition(t, nil)
	if a := e.do(t, http.MethodPost, definitionsPath, conflict.Document.Raw); a.status != nil {
		t.Fatal(a.status)
	}
	cluster := e.do(t, http.MethodPost, definitionsPath, (&testCase{Index: 401, Set: map[string]any{"spec.scope": "Cluster"}}).Definition(t, nil).Document.Raw)
	if cluster.status != nil {
		t.Fatal(cluster.status)
	}
	e.eventually(t, "/apis/c401.example.com/v1/crontabs", http.StatusOK)
	if r := get[metav1.APIResourceList](t, e, "/apis/c401.example.com/v1", jsonType).APIResources; len(r) != 1 || r[0].Namespaced {
		t.Errorf("cluster-scoped: %+v", r)
	}
	approved := (&testCase{Set: map[string]any{"spec.group": "stable.k8s.io", "metadata.name": "crontabs.stable.k8s.io",
		"metadata.annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, for a test"}}}).Definition(t, nil)
	if a := e.do(t, http.MethodPost, definitionsPath, approved.Document.Raw); a.status != nil {
		t.Fatal(a.status)
	}
	daemontest.Eventually(t, bound, func() error {
		if got := e.condition(t, conflict.Name, apiextensionsv1.NamesAccepted); !strings.HasPrefix(got, "False") {
			return fmt.Errorf("two definitions of one kind: NamesAccepted is %q", got)
		}
		if got := e.condition(t, approved.Name, apiextensionsv1.KubernetesAPIApprovalPolicyConformant); !strings.HasPrefix(got, "False") {
			return fmt.Errorf("KubernetesAPIApprovalPolicyConformant is %q", got)
		}
		return nil
	})
}

// testRequests proves what updates and patches of custom objects need, and that equal rules
// collide where definitions are applied.
// It observes CRD-22 and CRD-23 of docs/requirements.md.
func (e *env) testRequests(t *testing.T) {
	d := e.create(t, &testCase{Index: 410})
	a := e.post(t, d, "v1", "a", map[string]any{"spec": map[string]any{"replicas": 1}})
	a.object.SetResourceVersion("")
	body, err := a.object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	path := collection(d, "v1") + "/a"
	r := e.raw(t, http.MethodPut, path, jsonType, jsonType, string(body))
	if r.code != http.StatusUnprocessableEntity {
		t.Errorf("an update without a resource version: %d", r.code)
	}
	has(t, "the answer", r.body, "metadata.resourceVersion", "must be specified for an update")
	if r := e.raw(t, http.MethodPut, collection(d, "v1")+"/b", jsonType, jsonType, strings.Replace(string(body), `"name":"a"`, `"name":"b"`, 1)); r.code < 400 || e.etcd(t, d.Spec.Group+"/crontabs/")["b"] != nil {
		t.Errorf("an update creates an object: %d %s", r.code, r.body)
	}
	apply := `{"apiVersion": "` + d.Spec.Group + `/v1", "kind": "CronTab", "spec": {"replicas": 4}}`
	for _, patch := range []struct {
		kind, query, body string
		code              int
		replicas          int64
	}{
		{"application/json-patch+json", "", `[{"op": "replace", "path": "/spec/replicas", "value": 2}]`, http.StatusOK, 2},
		{"application/merge-patch+json", "", `{"spec": {"replicas": 3}}`, http.StatusOK, 3},
		{"application/apply-patch+yaml", "?fieldManager=test&force=true", apply, http.StatusOK, 4},
		{"application/strategic-merge-patch+json", "", `{"spec": {"replicas": 5}}`, http.StatusUnsupportedMediaType, 4},
	} {
		if r := e.raw(t, http.MethodPatch, path+patch.query, patch.kind, jsonType, patch.body); r.code != patch.code {
			t.Errorf("%s: %d %s", patch.kind, r.code, r.body)
		}
		if got := get[struct{ Spec struct{ Replicas int64 } }](t, e, path, jsonType).Spec.Replicas; got != patch.replicas {
			t.Errorf("after %s: %d replicas, want %d", patch.kind, got, patch.replicas)
		}
	}

	twice := (&testCase{Index: 411, Schema: map[string]any{"type": "object", "properties": map[string]any{"a": map[string]any{"type": "integer",
		"x-kubernetes-validations": []any{map[string]any{"rule": "self > 0"}, map[string]any{"rule": "self > 0", "message": "again"}}}}}})
	definition := twice.Definition(t, twice.Schema)
	r = e.raw(t, http.MethodPatch, definitionsPath+"/"+definition.Name+"?fieldManager=test", "application/apply-patch+yaml", jsonType, string(definition.Document.Raw))
	if r.code < 400 {
		t.Errorf("equal rules are applied: %d", r.code)
	}
	has(t, "the answer", r.body, "duplicate")
}

// testFinalizers proves that an object with finalizers of two parties is only marked by its
// deletion, takes no further finalizer then, and goes with the last one.
// It observes API-30, CRD-60, CRD-61 and CRD-62 of docs/requirements.md.
func (e *env) testFinalizers(t *testing.T) {
	d := e.create(t, &testCase{Index: 420})
	e.post(t, d, "v1", "a", map[string]any{"metadata": map[string]any{"name": "a", "finalizers": []any{"stable.example.com/finalizer", "example.org/other"}}})
	path := collection(d, "v1") + "/a"
	patch := func(finalizers string) reply {
		return e.raw(t, http.MethodPatch, path, "application/merge-patch+json", jsonType, `{"metadata": {"finalizers": `+finalizers+`}}`)
	}
	if r := e.raw(t, http.MethodDelete, path, jsonType, jsonType, `{"gracePeriodSeconds": 0}`); r.code != http.StatusOK {
		t.Fatalf("DELETE: %d %s", r.code, r.body)
	}
	object := get[metav1.PartialObjectMetadata](t, e, path, jsonType)
	if object.DeletionTimestamp == nil || len(object.Finalizers) != 2 {
		t.Errorf("after the deletion: %+v", object)
	}
	if r := patch(`["stable.example.com/finalizer", "example.org/other", "example.org/new"]`); r.code != http.StatusUnprocessableEntity {
		t.Errorf("a finalizer is added: %d %s", r.code, r.body)
	}
	if r := patch(`["example.org/other"]`); r.code != http.StatusOK {
		t.Errorf("the first one is removed: %d %s", r.code, r.body)
	}
	if e.etcd(t, d.Spec.Group+"/crontabs/")["a"] == nil {
		t.Error("the object is gone with a finalizer left")
	}
	if r := patch(`[]`); r.code != http.StatusOK {
		t.Errorf("the last one is removed: %d %s", r.code, r.body)
	}
	if r := e.raw(t, http.MethodGet, path, "", jsonType, ""); r.code != http.StatusNotFound {
		t.Errorf("without finalizers: %d %s", r.code, r.body)
	}
}

// older places a definition into etcd as an older API server may have stored it.
func (e *env) older(t *testing.T, index int, schema, set map[string]any) (path, objects string) {
	t.Helper()
	d := (&testCase{Index: index, Set: set}).Definition(t, schema)
	live := d.CustomResourceDefinition.DeepCopy()
	live.TypeMeta = metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}
	live.UID, live.CreationTimestamp, live.Generation = uuid.NewUUID(), metav1.Now(), 1
	live.Status.StoredVersions = []string{"v1"}
	text, err := json.Marshal(live)
	if err != nil {
		t.Fatal(err)
	}
	e.put(t, "apiextensions.k8s.io/customresourcedefinitions/"+d.Name, text)
	e.eventually(t, collection(d, "v1"), http.StatusOK)
	return definitionsPath + "/" + d.Name, collection(d, "v1")
}

// refuses wants a patch of a definition to be refused.
func (e *env) refuses(t *testing.T, path, contentType, patch, reason string) {
	t.Helper()
	r := e.raw(t, http.MethodPatch, path, contentType, jsonType, patch)
	if r.code != http.StatusUnprocessableEntity {
		t.Errorf("%s: %d", patch, r.code)
	}
	has(t, "the answer to "+patch, r.body, reason)
}

// testStored proves how the API server treats definitions that an older one has stored, and
// which it would not accept today.
// It observes CRD-36, CRD-42, CRD-134 and VER-41 of docs/requirements.md.
// It also observes OLD-45 of docs/requirements.md.
func (e *env) testStored(t *testing.T) {
	const merge = "application/merge-patch+json"
	path, objects := e.older(t, 430, map[string]any{"properties": map[string]any{"spec": map[string]any{"pattern": "a"}}}, map[string]any{"spec.preserveUnknownFields": true})
	daemontest.Eventually(t, bound, func() error {
		if got := e.condition(t, "crontabs.c430.example.com", apiextensionsv1.NonStructuralSchema); got != "True Violations" {
			return fmt.Errorf("NonStructuralSchema is %q", got)
		}
		return nil
	})
	keeps := func(name string) bool {
		body := `{"apiVersion": "c430.example.com/v1", "kind": "CronTab", "metadata": {"name": "` + name + `"}, "any": [1]}`
		if a := e.do(t, http.MethodPost, objects, []byte(body)); a.status != nil {
			t.Fatal(a.status)
		}
		return e.etcd(t, "c430.example.com/crontabs/")[name].Object["any"] != nil
	}
	if !keeps("before") {
		t.Error("objects of a definition that preserves unknown fields are pruned")
	}
	e.refuses(t, path, merge, `{"spec": {"conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://webhook.example.com"}}}}}`, "preserveUnknownFields")
	e.merge(t, path, `{"spec": {"preserveUnknownFields": false, "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}`)
	n := 0
	daemontest.Eventually(t, bound, func() error {
		if n++; keeps(fmt.Sprintf("after-%d", n)) {
			return fmt.Errorf("object %d is not pruned", n)
		}
		return nil
	})
	e.refuses(t, path, merge, `{"spec": {"preserveUnknownFields": true}}`, "cannot set to true")

	rule := []any{map[string]any{"rule": "self.all(x, x != 1 && x != 2 && x != 3 && x != 4)"}} // too expensive for a rule, not for a definition
	path, _ = e.older(t, 431, map[string]any{"type": "object", "properties": map[string]any{"l": map[string]any{"type": "array", "items": map[string]any{"type": "integer"}, "x-kubernetes-validations": rule}}}, nil)
	e.merge(t, path, `{"spec": {"names": {"categories": ["all"]}}}`)
	e.refuses(t, path, "application/json-patch+json", `[{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/m", "value": {"type": "string"}}]`, "exceeds budget")
}
