// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

const tableType = "application/json;as=Table;v=v1;g=meta.k8s.io"

// table is the header and the cells of the first row.
func (e *env) table(t *testing.T, path string) (header []string, cells []any, columns []metav1.TableColumnDefinition) {
	t.Helper()
	table := get[metav1.Table](t, e, path, tableType)
	for _, c := range table.ColumnDefinitions {
		header = append(header, fmt.Sprintf("%s %s %d", c.Name, c.Type, c.Priority))
	}
	if len(table.Rows) > 0 {
		cells = table.Rows[0].Cells
	}
	return header, cells, table.ColumnDefinitions
}

// testColumns proves which columns and cells the API server returns.
// It observes CRD-160, CRD-161, CRD-162, CRD-163, CRD-164 and CRD-165 of docs/requirements.md.
// It also observes OLD-73 of docs/requirements.md.
func (e *env) testColumns(t *testing.T) {
	plain := e.create(t, &testCase{Index: 440})
	header, _, columns := e.table(t, collection(plain, "v1"))
	if diff := gocmp.Diff([]string{"Name string 0", "Age date 0"}, header); diff != "" || columns[0].Format != "name" {
		t.Errorf("without columns (-want +got):\n%s", diff)
	}
	d := e.create(t, &testCase{Index: 441,
		Schema: map[string]any{"type": "object", "properties": map[string]any{"spec": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}, "status": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
		Version: map[string]any{
			"subresources": map[string]any{"scale": map[string]any{"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
			"additionalPrinterColumns": []any{
				map[string]any{"name": "Spec", "type": "string", "jsonPath": ".spec.cronSpec"},
				map[string]any{"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1},
				map[string]any{"name": "Wrong", "type": "integer", "jsonPath": ".spec.cronSpec"},
				map[string]any{"name": "Since", "type": "date", "jsonPath": ".spec.image"},
			}}})
	e.post(t, d, "v1", "a", map[string]any{"spec": map[string]any{"cronSpec": "* * * * */5", "replicas": 3, "image": "yesterday"}, "status": map[string]any{"replicas": 2}})
	header, cells, columns := e.table(t, collection(d, "v1"))
	if diff := gocmp.Diff([]string{"Name string 0", "Spec string 0", "Replicas integer 1", "Wrong integer 0", "Since date 0"}, header); diff != "" || columns[0].Format != "name" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff([]any{"a", "* * * * */5", float64(3), nil, "<invalid>"}, cells); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	header, cells, _ = e.table(t, collection(d, "v1")+"/a/scale")
	if diff := gocmp.Diff([]string{"Name string 0", "Desired integer 0", "Available integer 0"}, header[:3]); diff != "" {
		t.Errorf("header of the scale subresource (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff([]any{"a", float64(3), float64(2)}, cells[:3]); diff != "" {
		t.Errorf("cells of the scale subresource (-want +got):\n%s", diff)
	}
}

// testSelectors selects the documents' shirts by their fields.
// It observes CRD-170, CRD-171 and CRD-172 of docs/requirements.md.
// It also observes OLD-56 of docs/requirements.md.
func (e *env) testSelectors(t *testing.T) {
	d := e.create(t, &testCase{Index: 450, File: "shirts.yaml"})
	for name, spec := range map[string]map[string]any{"example1": {"color": "blue", "size": "S"}, "example2": {"color": "blue", "size": "M"}, "example3": {"color": "green", "size": "M"}, "bare": {}} {
		e.post(t, d, "v1", name, map[string]any{"spec": spec})
	}
	names := func(path, selector string) (names []string) {
		t.Helper()
		for _, item := range get[metav1.PartialObjectMetadataList](t, e, path+"?fieldSelector="+selector, jsonType).Items {
			names = append(names, item.Name)
		}
		return names
	}
	path, all := collection(d, "v1"), "/apis/"+d.Spec.Group+"/v1/shirts"
	for selector, want := range map[string][]string{
		"spec.color%3Dblue": {"example1", "example2"}, "spec.color%3Dgreen,spec.size%3DM": {"example3"}, "spec.color!%3Dblue": {"bare", "example3"},
		"spec.color%3D": {"bare"}, "metadata.name%3Dexample2": {"example2"}, "metadata.namespace%3Ddefault,spec.size%3DS": {"example1"}, "metadata.namespace%3Dother": nil,
	} {
		if diff := gocmp.Diff(want, names(all, selector)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", selector, diff)
		}
	}
	r := e.raw(t, http.MethodGet, path+"?fieldSelector=spec.brand%3Da", "", jsonType, "")
	if r.code != http.StatusBadRequest {
		t.Errorf("an undeclared field: %d", r.code)
	}
	has(t, "the answer", r.body, "field label not supported")
	watched := e.watch(t, path+"?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&fieldSelector=spec.color%3Dgreen", `"k8s.io/initial-events-end":"true"`)
	if bytes.Count(watched, []byte(`"type":"ADDED"`)) != 1 || !bytes.Contains(watched, []byte(`"name":"example3"`)) {
		t.Errorf("watched: %s", watched)
	}
	if r := e.raw(t, http.MethodDelete, path+"?fieldSelector=spec.color%3Dblue", jsonType, jsonType, ""); r.code != http.StatusOK {
		t.Errorf("deletecollection: %d %s", r.code, r.body)
	}
	if diff := gocmp.Diff([]string{"bare", "example3"}, names(path, "")); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// testSubresources proves what writes through the subresources change, and what the scale
// subresource answers without values.
// It observes CRD-181, CRD-182, CRD-183, CRD-185, CRD-186 and CRD-187 of docs/requirements.md.
// It also observes OLD-55 of docs/requirements.md.
func (e *env) testSubresources(t *testing.T) {
	spec := map[string]any{"type": "object", "properties": map[string]any{"replicas": map[string]any{"type": "integer"}, "selector": map[string]any{"type": "string"}}}
	schema := map[string]any{"type": "object", "properties": map[string]any{"spec": spec, "status": spec}}
	scale := map[string]any{"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}
	d := e.create(t, &testCase{Index: 460, Schema: schema, Version: map[string]any{"subresources": map[string]any{"status": map[string]any{}, "scale": scale}}})
	e.post(t, d, "v1", "a", map[string]any{"spec": map[string]any{}, "status": map[string]any{"replicas": 9}})
	path := collection(d, "v1") + "/a"
	type object struct {
		Metadata metav1.ObjectMeta
		Spec     map[string]any
		Status   map[string]any
	}
	is := func(what string, generation int64, spec, status map[string]any) {
		t.Helper()
		o := get[object](t, e, path, jsonType)
		if o.Metadata.Generation != generation || !gocmp.Equal(o.Spec, spec) || !gocmp.Equal(o.Status, status) || o.Metadata.Labels["from"] == "status" {
			t.Errorf("after %s: generation %d, want %d; %+v", what, o.Metadata.Generation, generation, o)
		}
	}
	is("creation", 1, map[string]any{}, nil)
	if r := e.raw(t, http.MethodGet, path+"/scale", "", jsonType, ""); r.code != http.StatusInternalServerError || !bytes.Contains(r.body, []byte("the spec replicas field")) {
		t.Errorf("scale without replicas: %d %s", r.code, r.body)
	}
	e.merge(t, path, `{"metadata": {"labels": {"a": "b"}}}`)
	is("a label", 1, map[string]any{}, nil)
	e.merge(t, path, `{"spec": {"replicas": 2}, "status": {"replicas": 7}}`)
	is("a write of all", 2, map[string]any{"replicas": 2.0}, nil)
	if s := get[autoscalingv1.Scale](t, e, path+"/scale", jsonType); s.Spec.Replicas != 2 || s.Status.Replicas != 0 || s.Status.Selector != "" || s.Name != "a" {
		t.Errorf("scale without a status: %+v", s)
	}
	e.merge(t, path+"/status", `{"metadata": {"labels": {"from": "status"}}, "spec": {"replicas": 8}, "status": {"replicas": 1, "selector": "app=a"}}`)
	is("a write of the status", 2, map[string]any{"replicas": 2.0}, map[string]any{"replicas": 1.0, "selector": "app=a"})
	if s := get[autoscalingv1.Scale](t, e, path+"/scale", jsonType); s.Status.Replicas != 1 || s.Status.Selector != "app=a" {
		t.Errorf("scale with a status: %+v", s)
	}
	e.merge(t, path+"/scale", `{"spec": {"replicas": 5}}`)
	is("a write of the scale", 3, map[string]any{"replicas": 5.0}, map[string]any{"replicas": 1.0, "selector": "app=a"})

	d = e.create(t, &testCase{Index: 461, Schema: schema})
	e.post(t, d, "v1", "a", nil)
	path = collection(d, "v1") + "/a"
	e.merge(t, path, `{"status": {"replicas": 1}}`)
	is("a status without the subresource", 2, nil, map[string]any{"replicas": 1.0})
}

// testDefaults proves that defaults are applied to what is read, without a write, and after a
// webhook that changed the object, and that an update stores them.
// It observes CRD-141 and CRD-142 of docs/requirements.md.
func (e *env) testDefaults(t *testing.T) {
	d := e.create(t, &testCase{Index: 470})
	e.post(t, d, "v1", "old", map[string]any{"spec": map[string]any{"image": "my-awesome-cron-image"}})
	cronSpec := func(name string) (read, stored any) {
		object := get[struct{ Spec map[string]any }](t, e, collection(d, "v1")+"/"+name, jsonType)
		return object.Spec["cronSpec"], e.etcd(t, d.Spec.Group+"/crontabs/")[name].Object["spec"].(map[string]any)["cronSpec"]
	}
	before := e.etcd(t, d.Spec.Group+"/crontabs/")["old"]
	if read, stored := cronSpec("old"); read != nil || stored != nil {
		t.Fatalf("read %v, stored %v", read, stored)
	}
	e.change(t, d.Name, func(d *apiextensionsv1.CustomResourceDefinition) {
		properties := d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
		property := properties["cronSpec"]
		property.Default = &apiextensionsv1.JSON{Raw: []byte(`"5 0 * * *"`)}
		properties["cronSpec"] = property
	})
	daemontest.Eventually(t, bound, func() error {
		if read, _ := cronSpec("old"); read != "5 0 * * *" {
			return fmt.Errorf("read %v", read)
		}
		return nil
	})
	if diff := gocmp.Diff(before, e.etcd(t, d.Spec.Group+"/crontabs/")["old"]); diff != "" {
		t.Errorf("reading has written (-before +after):\n%s", diff)
	}
	e.merge(t, collection(d, "v1")+"/old", `{"spec": {"image": "other"}}`)
	if _, stored := cronSpec("old"); stored != "5 0 * * *" {
		t.Errorf("an update stores %v", stored)
	}

	e.mutate(t, d, `[{"op": "remove", "path": "/spec/cronSpec"}]`)
	n := 0
	daemontest.Eventually(t, bound, func() error { // until the API server calls the webhook
		n++
		name := fmt.Sprintf("n%d", n)
		e.post(t, d, "v1", name, map[string]any{"spec": map[string]any{"cronSpec": "* * * * *"}})
		if _, stored := cronSpec(name); stored != "5 0 * * *" {
			return fmt.Errorf("stored %v", stored)
		}
		return nil
	})
}

// mutate adds an admission webhook that patches each new object of a definition.
func (e *env) mutate(t *testing.T, d *crd.Definition, patch string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, Patch: []byte(patch), PatchType: ptr.To(admissionv1.PatchTypeJSONPatch)}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	webhook := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: d.Name}, Webhooks: []admissionregistrationv1.MutatingWebhook{{
		Name: d.Name, AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
		ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To(server.URL), CABundle: ca},
		Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{"CREATE"},
			Rule: admissionregistrationv1.Rule{APIGroups: []string{d.Spec.Group}, APIVersions: []string{"*"}, Resources: []string{"*"}}}}}}}
	if _, err := e.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(), webhook, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// openAPI is the part of a published document that is compared.
type openAPI struct {
	Paths       map[string]map[string]json.RawMessage
	Definitions map[string]property
	Components  struct{ Schemas map[string]property }
}

type property struct {
	Type        string              `json:"type,omitempty"`
	Nullable    bool                `json:"nullable,omitempty"`
	AnyOf       []property          `json:"anyOf,omitempty"`
	Properties  map[string]property `json:"properties,omitempty"`
	Pattern     string              `json:"pattern,omitempty"`
	IntOrString bool                `json:"x-kubernetes-int-or-string,omitempty"`
	Preserve    bool                `json:"x-kubernetes-preserve-unknown-fields,omitempty"`
}

// testOpenAPI proves that the schema is published in full in v3, and in v2 without what v2
// cannot say, and which paths are published.
// It observes CRD-52, CRD-150, CRD-151 and CRD-152 of docs/requirements.md.
func (e *env) testOpenAPI(t *testing.T) {
	type m = map[string]any
	d := e.create(t, &testCase{Index: 480, Version: m{"subresources": m{"status": m{}, "scale": m{"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}},
		Schema: m{"type": "object", "properties": m{"full": fullSchema(), "status": m{"type": "object"}, "spec": m{"type": "object", "properties": m{
			"replicas":    m{"type": "integer"},
			"intOrString": m{"x-kubernetes-int-or-string": true},
			"any":         m{"type": "string", "anyOf": []any{m{"pattern": "^a"}, m{"pattern": "^b"}}},
			"none":        m{"type": "object", "nullable": true, "properties": m{"a": m{"type": "string"}}},
			"raw":         m{"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": m{"a": m{"type": "string"}}},
		}}}}})
	text, number := property{Type: "string"}, property{Type: "integer"}
	lossless := map[string]property{
		"replicas": number, "intOrString": {IntOrString: true, AnyOf: []property{number, text}}, "any": {Type: "string", AnyOf: []property{{Pattern: "^a"}, {Pattern: "^b"}}},
		"none": {Type: "object", Nullable: true, Properties: map[string]property{"a": text}}, "raw": {Type: "object", Preserve: true, Properties: map[string]property{"a": text}},
	}
	lossy := map[string]property{"replicas": number, "intOrString": {IntOrString: true}, "any": text, "none": {}, "raw": {Preserve: true}}
	all := "/apis/" + d.Spec.Group + "/v1/"
	one := all + "namespaces/{namespace}/crontabs"
	daemontest.Eventually(t, bound, func() error { // schemas are published a little later
		if r := e.raw(t, http.MethodGet, "/openapi/v3/apis/"+d.Spec.Group+"/v1", "", jsonType, ""); r.code != http.StatusOK {
			return fmt.Errorf("%d %s", r.code, r.body)
		}
		v2 := get[openAPI](t, e, "/openapi/v2", jsonType)
		if v2.Paths[one] == nil {
			return fmt.Errorf("/openapi/v2 lacks %s", one)
		}
		return nil
	})
	v3, v2 := get[openAPI](t, e, "/openapi/v3/apis/"+d.Spec.Group+"/v1", jsonType), get[openAPI](t, e, "/openapi/v2", jsonType)
	if diff := gocmp.Diff(lossless, schemaOf(v3.Components.Schemas, "c480.v1.CronTab")); diff != "" {
		t.Errorf("v3 (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff(lossy, schemaOf(v2.Definitions, "c480.v1.CronTab")); diff != "" {
		t.Errorf("v2 (-want +got):\n%s", diff)
	}
	for path, want := range map[string]string{
		all + "crontabs": "get", one: "delete get post", one + "/{name}": "delete get patch put",
		one + "/{name}/status": "get patch put", one + "/{name}/scale": "get patch put",
	} {
		for version, doc := range map[string]openAPI{"v2": v2, "v3": v3} {
			var verbs []string
			for verb := range doc.Paths[path] {
				if verb != "parameters" {
					verbs = append(verbs, verb)
				}
			}
			slices.Sort(verbs)
			if got := strings.Join(verbs, " "); got != want {
				t.Errorf("%s of %s: %q, want %q", version, path, got, want)
			}
		}
	}
	has(t, "creation", v2.Paths[one]["post"], jsonType, "application/yaml")
	full := fullSchema()
	raw := get[map[string]any](t, e, "/openapi/v3/apis/"+d.Spec.Group+"/v1", jsonType)["components"].(m)["schemas"].(m)
	if diff := gocmp.Diff(full, publishedFull(raw, "c480.v1.CronTab")); diff != "" {
		t.Errorf("all keywords in v3 (-want +got):\n%s", diff)
	}
	junctors := full["properties"].(m)["junctors"].(m)
	delete(full["properties"].(m)["kind"].(m), "default")
	for _, keyword := range []string{"allOf", "anyOf", "oneOf", "not"} {
		delete(junctors, keyword)
	}
	if diff := gocmp.Diff(full, publishedFull(get[map[string]any](t, e, "/openapi/v2", jsonType)["definitions"].(m), "c480.v1.CronTab")); diff != "" {
		t.Errorf("all keywords in v2 (-want +got):\n%s", diff)
	}
}

// fullSchema has each keyword that a structural schema of an object may have, but for those that the other fields of testOpenAPI have.
func fullSchema() map[string]any {
	type m = map[string]any
	text := m{"type": "string"}
	return m{
		"type": "object", "description": "Everything.", "title": "Full", "required": []any{"kind"}, "externalDocs": m{"url": "https://example.org", "description": "More."},
		"properties": m{
			"kind":     m{"type": "string", "enum": []any{"a", "b"}, "default": "a", "example": "b"},
			"name":     m{"type": "string", "minLength": 1.0, "maxLength": 5.0, "pattern": "^a"},
			"at":       m{"type": "string", "format": "date-time"},
			"count":    m{"type": "integer", "format": "int32", "minimum": 1.0, "exclusiveMinimum": true, "maximum": 10.0, "exclusiveMaximum": true, "multipleOf": 2.0},
			"set":      m{"type": "array", "x-kubernetes-list-type": "set", "minItems": 1.0, "maxItems": 3.0, "items": text},
			"list":     m{"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"a"}, "items": m{"type": "object", "required": []any{"a"}, "properties": m{"a": text}}},
			"map":      m{"type": "object", "minProperties": 1.0, "maxProperties": 3.0, "x-kubernetes-map-type": "atomic", "additionalProperties": text},
			"rule":     m{"type": "string", "maxLength": 5.0, "x-kubernetes-validations": []any{m{"rule": "self != 'x'", "message": "is x"}}},
			"junctors": m{"type": "string", "allOf": []any{m{"pattern": "^a"}}, "anyOf": []any{m{"pattern": "b"}, m{"maxLength": 9.0}}, "oneOf": []any{m{"pattern": "c$"}, m{"pattern": "d$"}}, "not": m{"pattern": "e"}},
		},
	}
}

// publishedFull is what a document has of fullSchema.
func publishedFull(in map[string]any, suffix string) map[string]any {
	for name, schema := range in {
		if strings.HasSuffix(name, suffix) {
			return schema.(map[string]any)["properties"].(map[string]any)["full"].(map[string]any)
		}
	}
	return nil
}

// schemaOf is the published spec of a kind.
func schemaOf(in map[string]property, suffix string) map[string]property {
	for name, schema := range in {
		if strings.HasSuffix(name, suffix) {
			return schema.Properties["spec"].Properties
		}
	}
	return nil
}
