// SPDX-License-Identifier: Apache-2.0

package install

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestKeysWithDots: a field path does not tell dots of keys from those between fields;
// the value is found all the same, and what is not there is absent.
func TestKeysWithDots(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"data":     map[string]any{"my-scheduler-config.yaml": "a", "plain": "b"},
		"metadata": map[string]any{"annotations": map[string]any{"example.com/x.y": "c"}},
		"spec":     map[string]any{"a": map[string]any{"b": "d"}, "a.c": []any{map[string]any{"name": "x.y", "v.w": "e"}}},
	}}
	for path, want := range map[string]string{
		".data.my-scheduler-config.yaml": `"a"`, ".data.plain": `"b"`, ".data.other.yaml": "absent",
		".metadata.annotations.example.com/x.y": `"c"`, ".spec.a.b": `"d"`, `.spec.a.c[name="x.y"].v.w`: `"e"`,
	} {
		if got := valueAt(u, path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
}

// TestConflictText: texts of several lines are shown by the lines that differ, with
// their field and owner; other values as they are.
func TestConflictText(t *testing.T) {
	for _, tc := range []struct {
		c        Conflict
		has, not string
	}{
		{Conflict{Field: ".data.x.yaml", Owner: "kubectl-replace", Live: `"a: 1\nb: 2\n"`, Wanted: `"a: 1\nb: 3\n"`}, "-b: 2\n    +b: 3", "a: 1"},
		{Conflict{Field: ".spec.replicas", Owner: "me", Live: "5", Wanted: "2"}, ".spec.replicas: is 5, the bundle says 2; owner: me", "differs"},
		{Conflict{Field: ".metadata.labels.x", Live: "absent", Wanted: `"y"`}, `is absent, the bundle says "y"`, "owner"},
	} {
		if got := tc.c.String(); !strings.Contains(got, tc.has) || strings.Contains(got, tc.not) || !strings.Contains(got, tc.c.Field) || !strings.Contains(got, tc.c.Owner) {
			t.Errorf("%+v is shown as %q", tc.c, got)
		}
	}
}

// TestFieldDifferences: every field that differs is named, with both values.
func TestFieldDifferences(t *testing.T) {
	live := map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "1"}}, "n": int64(1), "l": []any{"x"}}
	wanted := map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "1", "example.com/b": "2"}}, "n": float64(1), "l": []any{"y"}}
	want := []Conflict{{Field: ".l", Live: `["x"]`, Wanted: `["y"]`}, {Field: ".metadata.labels.example.com/b", Live: "absent", Wanted: `"2"`}}
	if diff := cmp.Diff(want, fieldDifferences(live, wanted, "")); diff != "" {
		t.Error(diff)
	}
}

// TestHeldBy: of a namespace that ends its conditions tell what it waits for.
func TestHeldBy(t *testing.T) {
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "status": map[string]any{"conditions": []any{
		map[string]any{"type": "NamespaceDeletionContentFailure", "status": "False", "message": "All content successfully deleted"},
		map[string]any{"type": "NamespaceFinalizersRemaining", "status": "True", "message": "Some content has finalizers remaining: x.y in 1 resource instances"},
	}}}}
	if got, want := heldBy(ns), "held by Some content has finalizers remaining: x.y in 1 resource instances"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
