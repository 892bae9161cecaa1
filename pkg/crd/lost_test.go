// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/crd"
)

// TestLost checks which fields are removed when nothing converts an object, by schemas of the two versions.
// It observes VER-47 of docs/requirements.md.
func TestLost(t *testing.T) {
	version := func(schema string) *apiextensionsv1.CustomResourceDefinitionVersion {
		s := &apiextensionsv1.JSONSchemaProps{}
		if err := yaml.UnmarshalStrict([]byte(schema), s); err != nil {
			t.Fatal(err)
		}
		return &apiextensionsv1.CustomResourceDefinitionVersion{Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: s}}
	}
	const (
		a        = `{type: object, properties: {a: {type: string}}}`
		nothing  = `{type: object}`
		anything = `{type: object, x-kubernetes-preserve-unknown-fields: true}`
		deep     = `{type: object, properties: {spec: {type: object, properties: {list: {type: array, items: ` + a + `}, map: {type: object, additionalProperties: ` + a + `}}}}}`
		flat     = `{type: object, properties: {spec: {type: object, properties: {list: {type: array, items: ` + nothing + `}, map: {type: object, additionalProperties: ` + nothing + `}}}}}`
		ofKeys   = `{type: object, additionalProperties: {type: string}}`
		number   = `{type: object, properties: {a: {type: integer}}}`
	)
	for name, tc := range map[string]struct{ from, to, want string }{
		"the same":           {deep, deep, ""},
		"more":               {nothing, deep, ""},
		"a field":            {a, nothing, ".a"},
		"kept unknown":       {a, anything, ""},
		"unknown":            {anything, a, "the root"},
		"a key":              {a, ofKeys, ""},
		"keys":               {ofKeys, a, "[*]"},
		"keys, kept unknown": {ofKeys, anything, ""},
		"in lists and maps":  {deep, flat, ".spec.list[*].a .spec.map[*].a"},
		"a part":             {deep, a, ".spec"},
		"another type":       {a, number, ""},
		"of all objects":     {`{type: object, properties: {apiVersion: {type: string}, kind: {type: string}, metadata: {type: object, properties: {name: {type: string}}}}}`, nothing, ""},
		"of an embedded one": {`{type: object, properties: {o: {type: object, properties: {kind: {type: string}, a: {type: string}}}}}`, `{type: object, properties: {o: {type: object, x-kubernetes-embedded-resource: true}}}`, ".o.a"},
		"unknown keys":       {anything, `{type: object, additionalProperties: {type: object, x-kubernetes-preserve-unknown-fields: true}}`, ""},
	} {
		if got := strings.Join(crd.Lost(version(tc.from), version(tc.to)), " "); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
