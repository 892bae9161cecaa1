// SPDX-License-Identifier: Apache-2.0

package validate_test

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-dev/fairlead/pkg/crd/internal/crdtest"
	"github.com/fairlead-dev/fairlead/pkg/crd/validate"
)

// TestStoredDefinition: a definition that a cluster has stored under older rules, and that could not be created any more,
// answers as there: the API server removes no unknown fields.
func TestStoredDefinition(t *testing.T) {
	c := &crdtest.Case{File: "crontabs-versions.yaml", Index: 990, Set: map[string]any{
		"spec.conversion": map[string]any{"strategy": "None"}, "spec.preserveUnknownFields": true,
	}}
	d := c.Definition(t, nil)
	if _, err := validate.New(t.Context(), d); err == nil || !strings.Contains(err.Error(), "preserveUnknownFields") {
		t.Errorf("a definition that is to be created: %v", err)
	}
	d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	v, err := validate.New(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	result := v.Create(t.Context(), c.Body(d, crdtest.ObjectCase{}, 0, map[string]any{"unknown": map[string]any{"a": "b"}}), validate.Options{})
	if result.Err != nil {
		t.Fatal(result.Err)
	}
	for name, u := range map[string]*unstructured.Unstructured{"stored": result.Stored, "returned": result.Returned} {
		if text, _, _ := unstructured.NestedString(u.Object, "unknown", "a"); text != "b" {
			t.Errorf("%s: %v", name, u.Object)
		}
	}
	if len(result.Warnings) > 0 {
		t.Errorf("warnings %q", result.Warnings)
	}
}

// TestCases proves that objects have exactly the errors, warnings and stored form that testdata/cases expects.
func TestCases(t *testing.T) {
	for _, c := range crdtest.Cases(t) {
		t.Run(c.Name, func(t *testing.T) { crdtest.CheckObjects(t, c) })
	}
}
