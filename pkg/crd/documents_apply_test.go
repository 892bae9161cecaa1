// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/crd/internal/crdtest"
)

const (
	applyType     = "application/apply-patch+yaml"
	mergeType     = "application/merge-patch+json"
	jsonPatchType = "application/json-patch+json"
	// ourselves is the manager of requests without a field manager: the first part of the user agent.
	ourselves = "Go-http-client"
)

// applied is an object that managers apply.
type applied struct {
	*env
	path, apiVersion string
}

// tabs is a definition of the documents with a list, and a default for replicas.
func (e *env) tabs(t *testing.T, index int) *crd.Definition {
	t.Helper()
	type m = map[string]any
	text := m{"type": "string"}
	return e.create(t, &testCase{Index: index,
		Schema: m{"type": "object", "properties": m{"spec": m{"type": "object", "properties": m{
			"cronSpec": text, "image": text, "replicas": m{"type": "integer", "default": 1}, "args": m{"type": "array", "items": text}}}}},
		Version: m{"subresources": m{"scale": m{"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}},
	})
}

func (e *env) applied(d *crd.Definition, name string) applied {
	return applied{e, collection(d, "v1") + "/" + name, d.Spec.Group + "/v1"}
}

// apply sends a spec as the intent of a manager. Query are further parameters.
func (a applied) apply(t *testing.T, manager, spec string, query ...string) reply {
	t.Helper()
	body := fmt.Sprintf(`{"apiVersion": %q, "kind": "CronTab", "metadata": {"name": %q}, "spec": %s}`, a.apiVersion, path.Base(a.path), spec)
	return a.raw(t, http.MethodPatch, a.path+"?"+strings.Join(append(query, "fieldManager="+manager), "&"), applyType, jsonType, body)
}

// applies wants the intent of a manager to be taken.
func (a applied) applies(t *testing.T, manager, spec string, query ...string) {
	t.Helper()
	if r := a.apply(t, manager, spec, query...); r.code != http.StatusOK && r.code != http.StatusCreated {
		t.Errorf("%s applies %s: %d %s", manager, spec, r.code, r.body)
	}
}

// conflicts wants the intent of a manager to be refused, with all others that own its fields, and these fields.
func (a applied) conflicts(t *testing.T, manager, spec, field string, others ...string) {
	t.Helper()
	r := a.apply(t, manager, spec)
	var status metav1.Status
	unmarshal(t, r.body, &status)
	if r.code != http.StatusConflict || status.Details == nil {
		t.Fatalf("%s applies %s: %d %s", manager, spec, r.code, r.body)
	}
	var got, want []string
	for _, c := range status.Details.Causes {
		got = append(got, fmt.Sprintf("%s %s %s", c.Type, c.Field, c.Message))
	}
	for _, other := range others {
		want = append(want, fmt.Sprintf("FieldManagerConflict %s conflict with %s", field, other))
	}
	same := len(got) == len(want)
	for i, w := range slices.Sorted(slices.Values(want)) {
		same = same && strings.HasPrefix(slices.Sorted(slices.Values(got))[i], w) // the time of an update may follow
	}
	if !same {
		t.Errorf("%s applies %s: the causes are %q, want %q", manager, spec, got, want)
	}
}

// spec wants an object to have this spec.
func (a applied) spec(t *testing.T, after, want string) {
	t.Helper()
	var wanted map[string]any
	unmarshal(t, []byte(want), &wanted)
	if diff := gocmp.Diff(wanted, get[struct{ Spec map[string]any }](t, a.env, a.path, jsonType).Spec); diff != "" {
		t.Errorf("after %s, the spec is (-want +got):\n%s", after, diff)
	}
}

// owned wants an object to have exactly these managers, such as "one Apply", with their fields below spec.
func (a applied) owned(t *testing.T, after string, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for _, f := range get[metav1.PartialObjectMetadata](t, a.env, a.path, jsonType).ManagedFields {
		key := f.Manager + " " + string(f.Operation)
		if f.Subresource != "" {
			key += " " + f.Subresource
		}
		if f.Manager == "kubectl-last-applied" {
			continue // kubectl's annotation
		}
		if f.FieldsType != "FieldsV1" || f.FieldsV1 == nil || f.APIVersion != a.apiVersion {
			t.Fatalf("the entry of %s is %+v", key, f)
		}
		var fields map[string]map[string]any
		unmarshal(t, f.FieldsV1.GetRawBytes(), &fields)
		var names []string
		for name := range fields["f:spec"] {
			if name != "." {
				names = append(names, strings.TrimPrefix(name, "f:"))
			}
		}
		slices.Sort(names)
		got[key] = strings.Join(names, " ")
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("after %s, the managers are (-want +got):\n%s", after, diff)
	}
}

// testApply proves what server-side apply takes and refuses, and who owns a field after each kind of write.
// It observes API-50, API-51, API-52, API-53, API-54, API-55, API-56, API-58, API-61 and API-69a of docs/requirements.md.
func (e *env) testApply(t *testing.T) {
	d := e.tabs(t, 1530)
	a := e.applied(d, "a")
	for query, want := range map[string]string{
		"":              "fieldManager: Required value",
		"fieldManager=": "fieldManager: Required value",
		"fieldManager=" + strings.Repeat("a", 129): "fieldManager: Too long",
		"fieldManager=a%0Ab":                       "fieldManager: Invalid value",
	} {
		r := e.raw(t, http.MethodPatch, a.path+"?"+query, applyType, jsonType, `{"apiVersion": "`+a.apiVersion+`", "kind": "CronTab"}`)
		if r.code != http.StatusUnprocessableEntity && r.code != http.StatusBadRequest {
			t.Errorf("?%s: %d", query, r.code)
		}
		has(t, "the answer to ?"+query, r.body, want)
	}
	if r := a.apply(t, "one", `{"cronSpec": "1"}`); r.code != http.StatusCreated {
		t.Errorf("the first apply: %d %s", r.code, r.body)
	}
	for kind, body := range map[string]string{mergeType: `{}`, jsonPatchType: `[]`} {
		r := e.raw(t, http.MethodPatch, a.path+"?fieldManager=one&force=true", kind, jsonType, body)
		if r.code != http.StatusUnprocessableEntity {
			t.Errorf("force in a patch of type %s: %d", kind, r.code)
		}
		has(t, "the answer", r.body, "force: Forbidden")
	}
	body := `{apiVersion: ` + a.apiVersion + `, kind: CronTab, metadata: {name: a, managedFields: [{manager: one}]}, spec: {}}`
	if r := e.raw(t, http.MethodPatch, a.path+"?fieldManager=one", applyType, jsonType, body); r.code != http.StatusBadRequest || !strings.Contains(string(r.body), "metadata.managedFields must be nil") {
		t.Errorf("apply with managedFields: %d %s", r.code, r.body)
	}
	a.owned(t, "the creation", map[string]string{"one Apply": "cronSpec"})
	a.fate(t)
	a.updates(t)

	// A list without markers belongs to one manager.
	list := e.applied(d, "list")
	list.applies(t, "one", `{"args": ["a"]}`)
	list.conflicts(t, "two", `{"args": ["b"]}`, ".spec.args", `"one"`)
	list.applies(t, "two", `{"args": ["a"]}`)
	list.owned(t, "the same list", map[string]string{"one Apply": "args", "two Apply": "args"})

	// Objects that no client applies have managed fields, too.
	e.post(t, d, "v1", "posted", map[string]any{"spec": map[string]any{"image": "a", "replicas": 2}})
	e.applied(d, "posted").owned(t, "a POST", map[string]string{ourselves + " Update": "image replicas"})
}

// fate shows the three ways out of a conflict, and how managers pass a field on. Manager one owns cronSpec.
func (a applied) fate(t *testing.T) {
	t.Helper()
	a.conflicts(t, "two", `{"cronSpec": "2"}`, ".spec.cronSpec", `"one"`)
	a.applies(t, "two", `{"image": "a"}`)
	a.spec(t, "giving up", `{"cronSpec": "1", "image": "a", "replicas": 1}`)
	a.owned(t, "giving up", map[string]string{"one Apply": "cronSpec", "two Apply": "image"})

	a.applies(t, "two", `{"cronSpec": "1"}`)
	a.spec(t, "sharing", `{"cronSpec": "1", "replicas": 1}`) // image had no other owner
	a.owned(t, "sharing", map[string]string{"one Apply": "cronSpec", "two Apply": "cronSpec"})
	a.conflicts(t, "one", `{"cronSpec": "2"}`, ".spec.cronSpec", `"two"`)
	a.conflicts(t, "two", `{"cronSpec": "2"}`, ".spec.cronSpec", `"one"`)
	a.applies(t, "three", `{"cronSpec": "1"}`)
	a.conflicts(t, "two", `{"cronSpec": "2"}`, ".spec.cronSpec", `"one"`, `"three"`)
	if r := a.raw(t, http.MethodPatch, a.path+"?fieldManager=three", applyType, jsonType, fmt.Sprintf(`{"apiVersion": %q, "kind": "CronTab", "metadata": {"name": "a"}}`, a.apiVersion)); r.code != http.StatusOK {
		t.Errorf("three applies nothing: %d %s", r.code, r.body)
	}
	a.owned(t, "applying nothing", map[string]string{"one Apply": "cronSpec", "two Apply": "cronSpec"})

	a.applies(t, "one", `{"replicas": 3}`)
	a.spec(t, "passing on", `{"cronSpec": "1", "replicas": 3}`)
	a.owned(t, "passing on", map[string]string{"one Apply": "replicas", "two Apply": "cronSpec"})
	a.applies(t, "two", `{"cronSpec": "2"}`)

	a.applies(t, "one", `{"cronSpec": "3", "replicas": 3}`, "force=true")
	a.spec(t, "force", `{"cronSpec": "3", "replicas": 3}`)
	a.owned(t, "force", map[string]string{"one Apply": "cronSpec replicas"})

	a.applies(t, "one", `{"cronSpec": "3"}`)
	a.spec(t, "dropping a field with a default", `{"cronSpec": "3", "replicas": 1}`)
}

// updates: other writes take what they change, without a conflict. Manager one owns cronSpec.
func (a applied) updates(t *testing.T) {
	t.Helper()
	if r := a.raw(t, http.MethodPatch, a.path+"?fieldManager=editor", jsonPatchType, jsonType, `[{"op": "replace", "path": "/spec/cronSpec", "value": "4"}]`); r.code != http.StatusOK {
		t.Errorf("a JSON patch: %d %s", r.code, r.body)
	}
	a.owned(t, "a JSON patch", map[string]string{"editor Update": "cronSpec"})
	a.conflicts(t, "one", `{"cronSpec": "3"}`, ".spec.cronSpec", `"editor" using `+a.apiVersion)
	a.merge(t, a.path, `{"spec": {"cronSpec": "5"}}`)
	a.owned(t, "a merge patch", map[string]string{ourselves + " Update": "cronSpec"})
	object := get[map[string]any](t, a.env, a.path, jsonType)
	object["spec"] = map[string]any{"cronSpec": "6", "replicas": 1}
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if r := a.raw(t, http.MethodPut, a.path+"?fieldManager=writer", jsonType, jsonType, string(text)); r.code != http.StatusOK {
		t.Errorf("PUT: %d %s", r.code, r.body)
	}
	a.owned(t, "a PUT", map[string]string{"writer Update": "cronSpec"})
}

// testReset proves that a list of managed fields with one empty entry removes all entries, before the rest of the request changes
// the object: the changes have no owner until the next apply. A list without entries does the same to types that are
// built in, and nothing to custom resources.
// It observes API-64 and OLD-72 of docs/requirements.md.
func (e *env) testReset(t *testing.T) {
	d := e.tabs(t, 1531)
	kept := map[string]string{"author Update": "image", "one Apply": "cronSpec"}
	for i, c := range []struct {
		entries string
		custom  map[string]string
	}{{`[{}]`, map[string]string{}}, {`[]`, kept}} {
		for kind, format := range map[string]string{
			mergeType:     `{"metadata": {"managedFields": %s}, %q: {"image": "b"}}`,
			jsonPatchType: `[{"op": "replace", "path": "/metadata/managedFields", "value": %s}, {"op": "add", "path": "/%s/image", "value": "b"}]`,
		} {
			format = strings.Replace(format, "%q", `"%s"`, 1)
			a := e.applied(d, fmt.Sprintf("a%d-%d", i, len(kind)))
			a.applies(t, "one", `{"cronSpec": "1"}`)
			body := fmt.Sprintf(format, c.entries, "spec")
			if r := e.raw(t, http.MethodPatch, a.path+"?fieldManager=author", kind, jsonType, body); r.code != http.StatusOK {
				t.Errorf("%s: %d %s", body, r.code, r.body)
			}
			a.owned(t, body, c.custom)
			a.spec(t, body, `{"cronSpec": "1", "image": "b", "replicas": 1}`)

			name := "reset-" + path.Base(a.path)
			text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": %q}, "data": {"a": "b"}}`, name)
			if r := e.raw(t, http.MethodPost, configMaps, jsonType, jsonType, text); r.code != http.StatusCreated {
				t.Fatalf("POST: %d %s", r.code, r.body)
			}
			body = fmt.Sprintf(format, c.entries, "data")
			if r := e.raw(t, http.MethodPatch, configMaps+"/"+name+"?fieldManager=author", kind, jsonType, body); r.code != http.StatusOK {
				t.Errorf("%s: %d %s", body, r.code, r.body)
			}
			if left := get[metav1.PartialObjectMetadata](t, e, configMaps+"/"+name, jsonType).ManagedFields; len(left) > 0 {
				t.Errorf("after %s, a ConfigMap has the managers %+v", body, left)
			}
		}
	}
}

// testHandover proves how the number of replicas goes from who applies it to an autoscaler, and what happens without care.
// It observes API-60 and OLD-78 of docs/requirements.md.
func (e *env) testHandover(t *testing.T) {
	d := e.tabs(t, 1532)
	scale := func(a applied, replicas int) {
		t.Helper()
		r := e.raw(t, http.MethodPatch, a.path+"/scale?fieldManager=autoscaler", mergeType, jsonType, fmt.Sprintf(`{"spec": {"replicas": %d}}`, replicas))
		if r.code != http.StatusOK {
			t.Errorf("scale: %d %s", r.code, r.body)
		}
	}
	const with, without = `{"image": "a", "replicas": 3}`, `{"image": "a"}`

	careless := e.applied(d, "careless")
	careless.applies(t, "main", with)
	careless.applies(t, "main", without)
	careless.spec(t, "dropping replicas first", `{"image": "a", "replicas": 1}`)

	waits := e.applied(d, "waits")
	waits.applies(t, "main", with)
	scale(waits, 5)
	waits.conflicts(t, "main", with, ".spec.replicas", `"autoscaler" with subresource "scale"`)
	waits.applies(t, "main", without)
	waits.spec(t, "dropping replicas after the conflict", `{"image": "a", "replicas": 5}`)

	hands := e.applied(d, "hands")
	hands.applies(t, "main", with)
	hands.applies(t, "handover-to-hpa", `{"replicas": 3}`)
	hands.owned(t, "the handover begins", map[string]string{"main Apply": "image replicas", "handover-to-hpa Apply": "replicas"})
	hands.applies(t, "main", without)
	hands.spec(t, "main has dropped replicas", `{"image": "a", "replicas": 3}`)
	scale(hands, 5)
	hands.owned(t, "the autoscaler has scaled", map[string]string{"main Apply": "image", "autoscaler Update scale": "replicas"})
	hands.applies(t, "main", without)
	hands.spec(t, "main applies again", `{"image": "a", "replicas": 5}`)

	k := kubectlTest{e.kubectl(t)}
	target := "crontabs." + d.Spec.Group + "/hands"
	k.run(t, "", "autoscale", target, "--cpu=50%", "--max=7", "--name=new")
	if out := k.run(t, "", "get", "hpa", "new", "-o", "jsonpath={.spec.metrics[0].resource.name} {.spec.metrics[0].resource.target.averageUtilization} {.spec.maxReplicas} {.spec.scaleTargetRef.name}"); out != "cpu 50 7 hands" {
		t.Errorf("kubectl autoscale --cpu=50%% made %q", out)
	}
	if out := k.run(t, "", "autoscale", target, "--cpu-percent=50", "--max=7", "--name=old"); !strings.Contains(out, "deprecated") {
		t.Errorf("kubectl autoscale --cpu-percent=50 says %q", out)
	}
	k.run(t, "", "delete", "hpa", "new", "old")
}

// testKubectlApply proves how kubectl moves an object from client-side apply to server-side apply and back, that appliers see
// what others have written meanwhile, and that they may change the version that they use.
// It observes API-62 and API-63 of docs/requirements.md.
func (e *env) testKubectlApply(t *testing.T) {
	d := e.tabs(t, 1533)
	k := kubectlTest{e.kubectl(t)}
	manifest := func(a applied, spec string) string {
		return fmt.Sprintf(`{"apiVersion": %q, "kind": "CronTab", "metadata": {"name": %q}, "spec": %s}`, a.apiVersion, path.Base(a.path), spec)
	}
	const clientSide = "kubectl-client-side-apply Update"
	a := e.applied(d, "moves")
	k.run(t, manifest(a, `{"image": "a", "cronSpec": "1"}`), "apply", "-f", "-")
	a.owned(t, "client-side apply", map[string]string{clientSide: "cronSpec image replicas"})
	k.run(t, manifest(a, `{"image": "b"}`), "apply", "--server-side", "--dry-run=server", "-f", "-")
	a.spec(t, "a dry run", `{"image": "a", "cronSpec": "1", "replicas": 1}`)
	k.run(t, manifest(a, `{"image": "b"}`), "apply", "--server-side", "-f", "-")
	a.spec(t, "the move", `{"image": "b", "replicas": 1}`) // what the last configuration had and this one lacks is removed
	a.owned(t, "the move", map[string]string{"kubectl Apply": "image"})
	k.run(t, manifest(a, `{"image": "c"}`), "apply", "-f", "-")
	a.spec(t, "the way back", `{"image": "c", "replicas": 1}`)

	scaled := e.applied(d, "scaled")
	k.run(t, manifest(scaled, `{"replicas": 2}`), "apply", "-f", "-")
	k.run(t, "", "scale", "--replicas=5", "crontabs."+d.Spec.Group+"/scaled")
	if out, err := k.try(manifest(scaled, `{"replicas": 2}`), "apply", "--server-side", "-f", "-"); err == nil || !strings.Contains(out, `conflict with "kubectl" with subresource "scale"`) {
		t.Errorf("server-side apply after kubectl scale: %v %s", err, out)
	}
	scaled.spec(t, "the conflict", `{"replicas": 5}`)
	k.run(t, manifest(scaled, `{"replicas": 2}`), "apply", "-f", "-")
	scaled.spec(t, "client-side apply, which sees no conflict", `{"replicas": 2}`)

	other := e.applied(d, "other")
	k.run(t, manifest(other, `{"image": "a"}`), "apply", "-f", "-")
	if out, err := k.try(manifest(other, `{"image": "b"}`), "apply", "--server-side", "--field-manager=other", "-f", "-"); err == nil || !strings.Contains(out, `conflict with "kubectl-client-side-apply"`) {
		t.Errorf("the move to another manager: %v %s", err, out)
	}

	schema := map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{"spec": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}
	versions := e.create(t, &testCase{Index: 1534, File: "crontabs-versions.yaml", Set: map[string]any{
		"spec.conversion": map[string]any{"strategy": "None"}, "spec.versions.0.schema": schema, "spec.versions.1.schema": schema}})
	old := applied{e, collection(versions, "v1beta1") + "/a", versions.Spec.Group + "/v1beta1"}
	current := applied{e, collection(versions, "v1") + "/a", versions.Spec.Group + "/v1"}
	old.applies(t, "one", `{"host": "a", "port": "1"}`)
	current.applies(t, "one", `{"host": "a"}`)
	current.spec(t, "the same intent without a field in another version", `{"host": "a"}`)
}

// testMarkers proves with Fairlead's own kinds that the API server publishes the markers of lists, and that it merges by them.
// It observes API-57 of docs/requirements.md.
func (e *env) testMarkers(t *testing.T) {
	text, err := os.ReadFile("../apis/fairlead/crds/fairlead.dev_schedulerprofiles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if text, err = yaml.YAMLToJSON(text); err != nil {
		t.Fatal(err)
	}
	d := crdtest.Decode(t, text)
	if a := e.do(t, http.MethodPost, definitionsPath, text); a.status != nil {
		t.Fatal(a.status)
	}
	e.established(t, d.Name)
	version := crd.StorageVersion(d.CustomResourceDefinition)
	all := "/apis/" + d.Spec.Group + "/" + version
	e.eventually(t, all+"/schedulerprofiles", http.StatusOK)
	e.eventually(t, "/openapi/v3"+all, http.StatusOK)
	schemas := get[map[string]any](t, e, "/openapi/v3"+all, jsonType)["components"].(map[string]any)["schemas"].(map[string]any)
	found := false
	for name, schema := range schemas {
		if !strings.HasSuffix(name, ".SchedulerProfile") {
			continue
		}
		found = true
		for field, want := range map[string][]any{"binpack resources": {"map", "name"}, "spread topologyKeys": {"set"}} {
			names := strings.Fields(field)
			list, _, err := unstructured.NestedMap(schema.(map[string]any), "properties", "spec", "properties", names[0], "properties", names[1])
			if err != nil {
				t.Fatal(err)
			}
			keys, _ := list["x-kubernetes-list-map-keys"].([]any)
			if diff := gocmp.Diff(want, append([]any{list["x-kubernetes-list-type"]}, keys...)); diff != "" {
				t.Errorf("the markers of %s (-want +got):\n%s", field, diff)
			}
		}
	}
	if !found {
		t.Errorf("no schema of SchedulerProfile is published")
	}
	apply := func(manager, name, spec string) {
		t.Helper()
		body := fmt.Sprintf(`{"apiVersion": "%s/%s", "kind": "SchedulerProfile", "metadata": {"name": %q}, "spec": %s}`, d.Spec.Group, version, name, spec)
		if r := e.raw(t, http.MethodPatch, all+"/schedulerprofiles/"+name+"?fieldManager="+manager, applyType, jsonType, body); r.code >= http.StatusBadRequest {
			t.Errorf("%s applies %s: %d %s", manager, spec, r.code, r.body)
		}
	}
	type list struct {
		Spec struct {
			Binpack struct {
				Resources []struct {
					Name   string
					Weight int
				}
			}
			Spread struct{ TopologyKeys []string }
		}
	}
	apply("one", "packed", `{"schedulerName": "packed", "strategy": "Binpack", "binpack": {"resources": [{"name": "cpu", "weight": 1}]}}`)
	apply("two", "packed", `{"schedulerName": "packed", "strategy": "Binpack", "binpack": {"resources": [{"name": "memory", "weight": 2}]}}`)
	if r := get[list](t, e, all+"/schedulerprofiles/packed", jsonType).Spec.Binpack.Resources; fmt.Sprint(r) != "[{cpu 1} {memory 2}]" {
		t.Errorf("entries of two managers: %v", r)
	}
	apply("one", "spread", `{"schedulerName": "spread", "strategy": "Spread", "spread": {"topologyKeys": ["a"]}}`)
	apply("two", "spread", `{"schedulerName": "spread", "strategy": "Spread", "spread": {"topologyKeys": ["b"]}}`)
	apply("one", "spread", `{"schedulerName": "spread", "strategy": "Spread"}`)
	if keys := get[list](t, e, all+"/schedulerprofiles/spread", jsonType).Spec.Spread.TopologyKeys; fmt.Sprint(keys) != "[b]" {
		t.Errorf("after one has dropped its value: %v", keys)
	}
}
