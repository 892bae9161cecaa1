// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: examples.example.org
spec:
  group: example.org
  names: {kind: Example, plural: examples}
  scope: Cluster
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, description: Kept root., properties: {a: {type: string, description: Kept.}}}}}
  - name: v1alpha1
    deprecated: true
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, description: Gone root., properties: {description: {type: string, description: Gone.}, list: {type: array, items: {type: string, description: Gone too.}}}}}
`

// TestTrim: only the deprecated version loses its descriptions, and none of its fields, also not
// one that is called description.
func TestTrim(t *testing.T) {
	out, err := trim([]byte(definition))
	if err != nil {
		t.Fatal(err)
	}
	text := string(out)
	if strings.Contains(text, "Gone") || strings.Count(text, "Kept") != 2 || !strings.Contains(text, "properties:\n          description:\n            type: string") {
		t.Errorf("trimmed to\n%s", text)
	}
	if !strings.Contains(text, "strategy: Webhook") {
		t.Errorf("a definition of two versions converts nothing:\n%s", text)
	}
	again, err := trim(out)
	if err != nil || string(again) != text {
		t.Errorf("a second run differs: %v\n%s", err, again)
	}
	if _, err := trim([]byte("kind: [")); err == nil {
		t.Error("a file that is no YAML is accepted")
	}
}

// TestOpenItems: an array of anything becomes an array of objects with any fields, in all versions,
// and other arrays stay as they are.
func TestOpenItems(t *testing.T) {
	const list = "list: {type: array, items: {type: string"
	open := strings.ReplaceAll(definition, "a: {type: string", "open: {type: array, x-kubernetes-preserve-unknown-fields: true}, a: {type: string")
	open = strings.ReplaceAll(open, list, "open: {type: array, x-kubernetes-preserve-unknown-fields: true}, "+list)
	out, err := trim([]byte(open))
	if err != nil {
		t.Fatal(err)
	}
	want := "open:\n            items:\n              type: object\n              x-kubernetes-preserve-unknown-fields: true\n            type: array\n"
	if text := string(out); strings.Count(text, want) != 2 || strings.Count(text, "preserve") != 2 {
		t.Errorf("completed to\n%s\nwant twice\n%s", text, want)
	}
}
