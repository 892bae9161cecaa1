// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/json"
	"testing"
)

// TestSchemas proves that schemas of two versions of a kind are equal if they differ in documentation or order alone, and that a property with the name of a
// keyword, a default and a type are no documentation.
func TestSchemas(t *testing.T) {
	const base = `{"openAPIV3Schema":{"type":"object","description":"old","properties":{"spec":{"type":"object","properties":{"description":{"type":"string"},"n":{"type":"integer","default":{"title":1}}}}}}}`
	for name, tc := range map[string]struct {
		other string
		same  bool
	}{
		"itself":                  {base, true},
		"description":             {`{"openAPIV3Schema":{"description":"new","type":"object","properties":{"spec":{"title":"Spec","properties":{"n":{"default":{"title":1},"type":"integer"},"description":{"type":"string","description":"x"}},"type":"object"}}}}`, true},
		"no description property": {`{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"n":{"type":"integer","default":{"title":1}}}}}}}`, false},
		"default":                 {`{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"description":{"type":"string"},"n":{"type":"integer","default":{"title":2}}}}}}}`, false},
		"type":                    {`{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"description":{"type":"string"},"n":{"type":"string","default":{"title":1}}}}}}}`, false},
	} {
		item := json.RawMessage(`{"items":[{"metadata":{"name":"x"},"spec":{"versions":[{"name":"v1","schema":` + base + `},{"name":"v2","schema":` + tc.other + `}]}}]}`)
		s, _ := lookAround(t, false, map[string]any{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions": item})
		if s.CRDs.Err != nil || len(s.CRDs.Value) != 1 {
			t.Fatalf("%+v", s.CRDs)
		}
		v := s.CRDs.Value[0].Versions
		if (v[0].Schema == v[1].Schema) != tc.same {
			t.Errorf("%s: %s and %s", name, v[0].Schema, v[1].Schema)
		}
	}
}
