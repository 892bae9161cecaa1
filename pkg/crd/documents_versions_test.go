// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// testVersions follows the documents' story of two versions: the storage version changes,
// objects move when they are written, and the old version is removed step by step.
// It observes VER-01, VER-03, VER-04, VER-05, VER-06, VER-08, VER-42, VER-43, VER-44, VER-45 and VER-48 of docs/requirements.md.
func (e *env) testVersions(t *testing.T) {
	schema := map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{"host": map[string]any{"type": "string"}, "port": map[string]any{"type": "string"}}}}
	d := e.create(t, &testCase{Index: 490, File: "crontabs-versions.yaml", Set: map[string]any{
		"spec.conversion": map[string]any{"strategy": "None"}, "spec.versions.0.schema": schema, "spec.versions.1.schema": schema,
	}})
	path := definitionsPath + "/" + d.Name
	old, current := d.Spec.Group+"/v1beta1", d.Spec.Group+"/v1"
	content := map[string]any{"host": "localhost", "port": "1234"}
	both := func(name string) { t.Helper(); e.sameInBoth(t, d, name) }
	e.post(t, d, "v1beta1", "first", content)
	e.wantStoredVersions(t, d, "v1beta1")
	both("first")

	e.change(t, d.Name, func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Versions[0].Storage, d.Spec.Versions[1].Storage = false, true
	})
	n := 0
	daemontest.Eventually(t, bound, func() error {
		n++
		name := fmt.Sprintf("second-%d", n)
		e.post(t, d, "v1beta1", name, content)
		both(name)
		if got := e.versions(t, d)[name]; got != current {
			return fmt.Errorf("a new object is stored in %s", got)
		}
		return nil
	})
	e.wantStoredVersions(t, d, "v1beta1", "v1")
	both("first")
	if got := e.versions(t, d)["first"]; got != old {
		t.Errorf("the first object is stored in %s before it is written", got)
	}
	drop := `[{"op": "remove", "path": "/spec/versions/0"}]`
	r := e.raw(t, http.MethodPatch, path, "application/json-patch+json", jsonType, drop)
	if r.code != http.StatusUnprocessableEntity {
		t.Errorf("v1beta1 is dropped early: %d", r.code)
	}
	has(t, "the answer", r.body, "missing from spec.versions; v1beta1 was previously a storage version")
	e.merge(t, collection(d, "v1beta1")+"/first", `{"port": "1235"}`)
	if got := e.versions(t, d)["first"]; got != current {
		t.Errorf("the first object is stored in %s after it is written", got)
	}
	e.removeVersion(t, d.Name, collection(d, "v1beta1"), drop)
	if object := get[map[string]any](t, e, collection(d, "v1")+"/first", jsonType); object["port"] != "1235" {
		t.Errorf("the first object is %v in the end", object)
	}
}

// sameInBoth reads an object in both versions: only apiVersion differs.
func (e *env) sameInBoth(t *testing.T, d *crd.Definition, name string) {
	t.Helper()
	v1beta1, v1 := get[map[string]any](t, e, collection(d, "v1beta1")+"/"+name, jsonType), get[map[string]any](t, e, collection(d, "v1")+"/"+name, jsonType)
	if v1beta1["apiVersion"] != d.Spec.Group+"/v1beta1" || v1["apiVersion"] != d.Spec.Group+"/v1" || v1["host"] != "localhost" {
		t.Errorf("%s: %v and %v", name, v1beta1, v1)
	}
	for _, object := range []map[string]any{v1, v1beta1} {
		delete(object, "apiVersion")
		delete(object["metadata"].(map[string]any), "managedFields")
	}
	if diff := gocmp.Diff(v1beta1, v1); diff != "" {
		t.Errorf("%s differs by version (-v1beta1 +v1):\n%s", name, diff)
	}
}

// removeVersion removes the version whose objects are at a path, as the documents say.
func (e *env) removeVersion(t *testing.T, name, objects, drop string) {
	t.Helper()
	path := definitionsPath + "/" + name
	e.merge(t, path, string(e.unserved(t, name)))
	e.eventually(t, objects, http.StatusNotFound)
	if r := e.raw(t, http.MethodPatch, path, "application/json-patch+json", jsonType, drop); r.code != http.StatusUnprocessableEntity {
		t.Errorf("v1beta1 is dropped before status.storedVersions: %d %s", r.code, r.body)
	}
	kubectl := e.kubectl(t)
	patch := func(versions string) {
		t.Helper()
		if _, err := kubectl("", "patch", "customresourcedefinitions", name, "--subresource=status", "--type=merge", "-p", `{"status":{"storedVersions":[`+versions+`]}}`); err != nil {
			t.Error(err)
		}
	}
	patch(`"v1","v9"`) // v9 does not exist
	patch(`"v1"`)
	if r := e.raw(t, http.MethodPatch, path, "application/json-patch+json", jsonType, drop); r.code != http.StatusOK {
		t.Errorf("v1beta1 is not dropped: %d %s", r.code, r.body)
	}
}

// unserved is a patch that stops to serve the first version.
func (e *env) unserved(t *testing.T, name string) []byte {
	t.Helper()
	d, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.Spec.Versions[0].Served = false
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"versions": d.Spec.Versions}})
	if err != nil {
		t.Fatal(err)
	}
	return patch
}

// testPriority proves the order of versions in discovery, whatever their order in the
// definition.
// It observes VER-20, VER-21, VER-22, VER-23, VER-24 and VER-25 of docs/requirements.md.
// It also observes OLD-61 of docs/requirements.md.
func (e *env) testPriority(t *testing.T) {
	c := &testCase{Index: 500, File: "crontabs.yaml"}
	var versions []any
	for _, name := range []string{"foo10", "v1beta", "v2beta2", "v12alpha1", "v1", "v11beta2", "foo1", "v2", "v3beta1", "v2beta10", "v10", "v11alpha2", "v10beta3"} {
		versions = append(versions, map[string]any{"name": name, "served": true, "storage": name == "foo10", "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}})
	}
	c.Set = map[string]any{"spec.versions": versions}
	d := e.create(t, c)
	want := []string{"v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v2beta10", "v2beta2", "v12alpha1", "v11alpha2", "foo1", "foo10", "v1beta"}
	daemontest.Eventually(t, bound, func() error {
		group := get[metav1.APIGroup](t, e, "/apis/"+d.Spec.Group, jsonType)
		var got []string
		for _, v := range group.Versions {
			got = append(got, v.Version)
		}
		if diff := gocmp.Diff(want, got); diff != "" || group.PreferredVersion.Version != "v10" {
			return fmt.Errorf("preferred %s (-want +got):\n%s", group.PreferredVersion.Version, diff)
		}
		return nil
	})
	service := get[apiregistrationv1.APIService](t, e, "/apis/apiregistration.k8s.io/v1/apiservices/v10."+d.Spec.Group, jsonType)
	if service.Spec.GroupPriorityMinimum != 1000 || service.Spec.VersionPriority != 100 {
		t.Errorf("priorities %+v", service.Spec)
	}
	e.outranked(t, d)
	kubectl := e.kubectl(t)
	if out, err := kubectl("", "get", "crontabs."+d.Spec.Group, "-v=6"); err != nil || !strings.Contains(out, "/apis/"+d.Spec.Group+"/v10/namespaces/default/crontabs") {
		t.Errorf("kubectl does not ask for v10: %v\n%s", err, out)
	}
}

// outranked: a group of an extension API server comes before that of a definition if its priority is higher, otherwise after it.
func (e *env) outranked(t *testing.T, d *crd.Definition) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		group, version, found := strings.Cut(strings.TrimPrefix(r.URL.Path, "/apis/"), "/")
		if !found || version != "v1" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", jsonType)
		_ = json.NewEncoder(w).Encode(metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: group + "/v1",
			APIResources: []metav1.APIResource{{Name: "things", SingularName: "thing", Kind: "Thing", Verbs: metav1.Verbs{"get"}}}})
	}))
	t.Cleanup(server.Close)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "extension", Namespace: "default"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}}
	if _, err := e.Client.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const path, higher, lower = "/apis/apiregistration.k8s.io/v1/apiservices", "higher.example.com", "lower.example.com"
	for group, priority := range map[string]int{higher: 1001, lower: 999} {
		body, err := json.Marshal(apiregistrationv1.APIService{TypeMeta: metav1.TypeMeta{APIVersion: "apiregistration.k8s.io/v1", Kind: "APIService"}, ObjectMeta: metav1.ObjectMeta{Name: "v1." + group},
			Spec: apiregistrationv1.APIServiceSpec{Group: group, Version: "v1", GroupPriorityMinimum: int32(priority), VersionPriority: 1, InsecureSkipTLSVerify: true,
				Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "extension", Port: ptr.To(int32(server.Listener.Addr().(*net.TCPAddr).Port))}}})
		if err != nil {
			t.Fatal(err)
		}
		if a := e.do(t, http.MethodPost, path, body); a.status != nil {
			t.Fatal(a.status)
		}
		defer e.do(t, http.MethodDelete, path+"/v1."+group, nil)
	}
	daemontest.Eventually(t, bound, func() error {
		var got []string
		for _, group := range get[metav1.APIGroupList](t, e, "/apis", jsonType).Groups {
			if slices.Contains([]string{higher, lower, d.Spec.Group}, group.Name) {
				got = append(got, group.Name)
			}
		}
		if diff := gocmp.Diff([]string{higher, d.Spec.Group, lower}, got); diff != "" {
			return fmt.Errorf("groups (-want +got):\n%s", diff)
		}
		return nil
	})
}
