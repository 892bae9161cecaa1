// SPDX-License-Identifier: Apache-2.0

// Package crdtest reads the definitions and cases in testdata of pkg/crd. The packages below have a link to that directory.
package crdtest

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

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/crd/manifest"
)

// Case is an entry of testdata/cases: a definition, what is said about it, and objects
// of it.
type Case struct {
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
	Refused  []Expected   `json:"refused"`
	Findings []string     `json:"findings"`
	Objects  []ObjectCase `json:"objects"`

	// Index is the number of the case, of which its group is made.
	Index int `json:"-"`
}

// Expected is an error.
type Expected struct {
	Field string `json:"field"`
	Text  string `json:"text"`
}

// ObjectCase is an object of a case, and what is said about it.
type ObjectCase struct {
	Name     string         `json:"name"`
	Object   map[string]any `json:"object"`
	Old      map[string]any `json:"old"`
	Version  string         `json:"version"`
	Status   bool           `json:"status"`
	Strict   bool           `json:"strict"`
	Code     int32          `json:"code"`
	Errors   []Expected     `json:"errors"`
	Warnings []string       `json:"warnings"`
	Stored   map[string]any `json:"stored"`
}

// Cases are those of testdata/cases.
func Cases(t *testing.T) []*Case {
	t.Helper()
	files, err := filepath.Glob("testdata/cases/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	var all []*Case
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var some []*Case
		if err := yaml.UnmarshalStrict(data, &some); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, some...)
	}
	for i, c := range all {
		c.Index = i
	}
	return all
}

// Group is of the case alone, so that all definitions fit into one API server.
func (c *Case) Group() string { return fmt.Sprintf("c%d.example.com", c.Index) }

// Definition builds the definition of a case. A case that is accepted gets a group of its
// own.
func (c *Case) Definition(t *testing.T, schema map[string]any) *crd.Definition {
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
		set(content, "spec.group", c.Group())
		set(content, "metadata.name", content["spec"].(map[string]any)["names"].(map[string]any)["plural"].(string)+"."+c.Group())
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
	return Decode(t, text)
}

// Decode reads a definition.
func Decode(t *testing.T, text []byte) *crd.Definition {
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
		if !more { // Definition drops elements that are nil
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

// Body fills in what the object of a case leaves out.
func (c *Case) Body(d *crd.Definition, o ObjectCase, i int, content map[string]any) []byte {
	out := runtime.DeepCopyJSON(AsJSON(content))
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

// AsJSON makes numbers those of JSON objects.
func AsJSON(in map[string]any) map[string]any {
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

// Content is an object without apiVersion, kind and metadata.
func Content(in map[string]any) map[string]any {
	out := maps.Clone(in)
	for _, k := range []string{"apiVersion", "kind", "metadata"} {
		delete(out, k)
	}
	return AsJSON(out)
}

// CompareErrors wants exactly the expected errors, in any order.
func CompareErrors(t *testing.T, want []Expected, n int, got func(int) (field, message string)) {
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

// CompareWarnings wants exactly these warnings, in any order.
func CompareWarnings(t *testing.T, name string, d *crd.Definition, want, got []string) {
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

// Change is an entry of testdata/changes.
type Change struct {
	Name      string         `json:"name"`
	Rows      []string       `json:"rows"`
	File      string         `json:"file"`
	Old       map[string]any `json:"old"`
	Set       map[string]any `json:"set"`
	OldSchema map[string]any `json:"oldSchema"`
	Schema    map[string]any `json:"schema"`
	Findings  []string       `json:"findings"`

	// Index is the number of the change.
	Index int `json:"-"`
}

// Changes are those of testdata/changes.
func Changes(t *testing.T) []*Change {
	t.Helper()
	data, err := os.ReadFile("testdata/changes/changes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []*Change
	if err := yaml.UnmarshalStrict(data, &all); err != nil {
		t.Fatal(err)
	}
	for i, c := range all {
		c.Index = i
	}
	return all
}

// Generations are the older and the newer definition.
func (c *Change) Generations(t *testing.T) (old, current *crd.Definition) {
	t.Helper()
	build := func(set, schema map[string]any) *crd.Definition {
		return (&Case{File: c.File, Set: set, Index: 3000 + c.Index}).Definition(t, schema)
	}
	return build(c.Old, c.OldSchema), build(c.Set, c.Schema)
}
