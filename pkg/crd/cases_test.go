// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/crd/lint"
	"github.com/fairlead-dev/fairlead/pkg/crd/manifest"
	"github.com/fairlead-dev/fairlead/pkg/crd/validate"
)

// testCase is an entry of testdata/cases: a definition, what is said about it, and objects
// of it.
type testCase struct {
	Name string   `json:"name"`
	Rows []string `json:"rows"`
	// File, with Set on top, or Schema, with Version on top, is the definition.
	File    string         `json:"file"`
	Set     map[string]any `json:"set"`
	Schema  map[string]any `json:"schema"`
	Version map[string]any `json:"version"`
	Before  map[string]any `json:"before"`
	// Refused and Findings are what is expected; Strict is field validation of the definition.
	Strict   bool         `json:"strict"`
	Refused  []expected   `json:"refused"`
	Findings []string     `json:"findings"`
	Objects  []objectCase `json:"objects"`

	index int
}

type expected struct {
	Field string `json:"field"`
	Text  string `json:"text"`
}

type objectCase struct {
	Name     string         `json:"name"`
	Object   map[string]any `json:"object"`
	Old      map[string]any `json:"old"`
	Version  string         `json:"version"`
	Status   bool           `json:"status"`
	Strict   bool           `json:"strict"`
	Code     int32          `json:"code"`
	Errors   []expected     `json:"errors"`
	Warnings []string       `json:"warnings"`
	Stored   map[string]any `json:"stored"`
}

func cases(t *testing.T) []*testCase {
	t.Helper()
	files, err := filepath.Glob("testdata/cases/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	var all []*testCase
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var some []*testCase
		if err := yaml.UnmarshalStrict(data, &some); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, some...)
	}
	for i, c := range all {
		c.index = i
	}
	return all
}

// group is of the case alone, so that all definitions fit into one API server.
func (c *testCase) group() string { return fmt.Sprintf("c%d.example.com", c.index) }

// definition builds the definition of a case. A case that is accepted gets a group of its
// own.
func (c *testCase) definition(t *testing.T, schema map[string]any) *crd.Definition {
	t.Helper()
	file := c.File
	if file == "" {
		file = "crontabs.yaml"
	}
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]any{}
	if err := yaml.Unmarshal(data, &content); err != nil {
		t.Fatal(err)
	}
	if schema != nil {
		set(content, "spec.versions.0.schema.openAPIV3Schema", schema)
	}
	for k, v := range c.Version {
		set(content, "spec.versions.0."+k, v)
	}
	if len(c.Refused) == 0 {
		set(content, "spec.group", c.group())
		set(content, "metadata.name", content["spec"].(map[string]any)["names"].(map[string]any)["plural"].(string)+"."+c.group())
	}
	for _, k := range slices.Backward(slices.Sorted(maps.Keys(c.Set))) { // a removed element comes after changes of those behind it
		set(content, k, c.Set[k])
	}
	spec := content["spec"].(map[string]any)
	spec["versions"] = slices.DeleteFunc(spec["versions"].([]any), func(v any) bool { return v == nil })
	text, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, text)
}

func decode(t *testing.T, text []byte) *crd.Definition {
	t.Helper()
	docs, err := manifest.Load([]string{"-"}, false, strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	d, err := crd.Decode(docs[0])
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// set changes a field of nested maps and lists; nil removes it.
func set(in any, path string, value any) {
	head, rest, more := strings.Cut(path, ".")
	switch node := in.(type) {
	case []any:
		i, _ := strconv.Atoi(head)
		if !more { // definition drops elements that are nil
			node[i] = value
			return
		}
		set(node[i], rest, value)
	case map[string]any:
		switch {
		case more:
			set(node[head], rest, value)
		case value == nil:
			delete(node, head)
		default:
			node[head] = value
		}
	}
}

// body fills in what the object of a case leaves out.
func (c *testCase) body(d *crd.Definition, o objectCase, i int, content map[string]any) []byte {
	out := runtime.DeepCopyJSON(asJSON(content))
	version := o.Version
	if version == "" {
		version = d.Spec.Versions[0].Name
	}
	if _, ok := out["apiVersion"]; !ok {
		out["apiVersion"] = d.Spec.Group + "/" + version
	}
	if _, ok := out["kind"]; !ok {
		out["kind"] = d.Spec.Names.Kind
	}
	meta, _ := out["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	if _, ok := meta["name"]; !ok {
		meta["name"] = fmt.Sprintf("o%d", i)
	}
	out["metadata"] = meta
	text, err := json.Marshal(out)
	if err != nil {
		panic(err)
	}
	return []byte(strings.ReplaceAll(string(text), "GROUP", d.Spec.Group))
}

// asJSON makes numbers those of JSON objects.
func asJSON(in map[string]any) map[string]any {
	text, err := json.Marshal(in)
	if err != nil {
		panic(err)
	}
	out := map[string]any{}
	if err := yaml.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return out
}

// tool answers to an object of a case as "fairlead crd validate" does.
func (c *testCase) tool(t *testing.T, v *validate.Validator, d *crd.Definition, o objectCase, i int) *validate.Result {
	options := validate.Options{}
	if o.Strict {
		options.FieldValidation = "Strict"
	}
	body := c.body(d, o, i, o.Object)
	switch {
	case o.Old == nil:
		return v.Create(t.Context(), body, options)
	case o.Status:
		return v.UpdateStatus(t.Context(), body, c.body(d, o, i, o.Old), options)
	default:
		return v.Update(t.Context(), body, c.body(d, o, i, o.Old), options)
	}
}

// TestCases proves that lint and validate say what the data in testdata/cases expects.
// TestAgainstAPIServer proves that a kube-apiserver says the same.
func TestCases(t *testing.T) {
	for _, c := range cases(t) {
		t.Run(c.Name, func(t *testing.T) {
			d := c.definition(t, c.Schema)
			findings, err := lint.Definition(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			refused := lint.Refused(findings)
			var got []string
			for _, f := range findings {
				if f.Remedy == "" {
					t.Errorf("%s has no remedy", f.Rule)
				}
				if !slices.ContainsFunc(refused, func(r lint.Finding) bool { return cmp.Equal(r, f, cmp.AllowUnexported(lint.Finding{})) }) {
					got = append(got, string(f.Level)+" "+f.Rule)
				}
			}
			compareErrors(t, c.Refused, len(refused), func(i int) (string, string) { return refused[i].Field, refused[i].Message })
			if diff := cmp.Diff(slices.Sorted(slices.Values(c.Findings)), slices.Sorted(slices.Values(got))); diff != "" {
				t.Errorf("findings (-want +got):\n%s\n%+v", diff, findings)
			}
			if len(c.Refused) == 0 {
				c.checkObjects(t, d)
			}
		})
	}
}

func (c *testCase) checkObjects(t *testing.T, d *crd.Definition) {
	v, err := validate.New(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range c.Objects {
		name := fmt.Sprintf("object %d %s", i, o.Name)
		r := c.tool(t, v, d, o, i)
		compareWarnings(t, name, d, o.Warnings, r.Warnings)
		status := r.Status()
		switch {
		case status == nil && r.Err != nil:
			t.Errorf("%s: %v", name, r.Err)
		case o.Code != 0 || len(o.Errors) > 0:
			if status == nil {
				t.Errorf("%s is accepted", name)
				continue
			}
			if o.Code != 0 && o.Code != status.Code {
				t.Errorf("%s: code %d, want %d: %s", name, status.Code, o.Code, status.Message)
			}
			if status.Code == 422 {
				causes := status.Details.Causes
				compareErrors(t, o.Errors, len(causes), func(i int) (string, string) { return causes[i].Field, causes[i].Message })
			}
		case r.Err != nil:
			t.Errorf("%s is refused: %v", name, r.Err)
		default:
			if got := r.Stored.GroupVersionKind().Version; got != crd.StorageVersion(d.CustomResourceDefinition) {
				t.Errorf("%s is stored in %s", name, got)
			}
			if diff := cmp.Diff(asJSON(o.Stored), content(r.Stored.Object)); diff != "" {
				t.Errorf("%s as stored (-want +got):\n%s", name, diff)
			}
		}
	}
}

// content is an object without apiVersion, kind and metadata.
func content(in map[string]any) map[string]any {
	out := maps.Clone(in)
	for _, k := range []string{"apiVersion", "kind", "metadata"} {
		delete(out, k)
	}
	return asJSON(out)
}

// compareErrors wants exactly the expected errors, in any order.
func compareErrors(t *testing.T, want []expected, n int, got func(int) (field, message string)) {
	t.Helper()
	used := make([]bool, n)
	for _, w := range want {
		found := false
		for i := range n {
			field, message := got(i)
			if !used[i] && !found && strings.TrimPrefix(field, "<nil>") == w.Field && strings.Contains(message, w.Text) {
				used[i], found = true, true
			}
		}
		if !found {
			t.Errorf("no error of field %q with %q", w.Field, w.Text)
		}
	}
	for i := range n {
		if field, message := got(i); !used[i] {
			t.Errorf("unexpected error of field %q: %s", field, message)
		}
	}
}

func compareWarnings(t *testing.T, name string, d *crd.Definition, want, got []string) {
	t.Helper()
	rest := slices.Clone(got)
	for _, w := range want {
		w = strings.ReplaceAll(w, "GROUP", d.Spec.Group)
		i := slices.IndexFunc(rest, func(g string) bool { return strings.Contains(g, w) })
		if i < 0 {
			t.Errorf("%s: no warning %q in %q", name, w, got)
			continue
		}
		rest = slices.Delete(rest, i, i+1)
	}
	if len(rest) > 0 {
		t.Errorf("%s: unexpected warnings %q", name, rest)
	}
}
