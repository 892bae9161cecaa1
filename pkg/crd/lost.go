// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Lost lists the fields of objects of one version that the API server removes when it writes them in another
// one and nothing converts them, such as .spec.replicas.
func Lost(from, to *apiextensionsv1.CustomResourceDefinitionVersion) []string {
	if from.Schema == nil || to.Schema == nil {
		return nil
	}
	return lost(from.Schema.OpenAPIV3Schema, to.Schema.OpenAPIV3Schema, "")
}

// ofObjects are the fields that the API server keeps in each object, whatever the schema says.
var ofObjects = []string{"apiVersion", "kind", "metadata"}

// lost compares one value; object is its path.
func lost(from, to *apiextensionsv1.JSONSchemaProps, object string) (all []string) {
	if from == nil || to == nil || from.Type != to.Type && to.Type != "" {
		return nil // a value of another type is refused, and not removed
	}
	keeps := isTrue(to.XPreserveUnknownFields)
	if isTrue(from.XPreserveUnknownFields) && !keeps && to.AdditionalProperties == nil {
		all = append(all, orRoot(object))
	}
	for _, name := range slices.Sorted(maps.Keys(from.Properties)) {
		f := from.Properties[name]
		t, found := to.Properties[name]
		switch {
		case (object == "" || to.XEmbeddedResource) && slices.Contains(ofObjects, name):
		case found:
			all = append(all, lost(&f, &t, object+"."+name)...)
		case keeps:
		case to.AdditionalProperties != nil:
			all = append(all, lost(&f, to.AdditionalProperties.Schema, object+"."+name)...)
		default:
			all = append(all, object+"."+name)
		}
	}
	return append(all, lostParts(from, to, object)...)
}

// lostParts compares further keys and items of one value.
func lostParts(from, to *apiextensionsv1.JSONSchemaProps, object string) (all []string) {
	if from.AdditionalProperties != nil {
		switch {
		case to.AdditionalProperties != nil:
			all = append(all, lost(from.AdditionalProperties.Schema, to.AdditionalProperties.Schema, object+"[*]")...)
		case !isTrue(to.XPreserveUnknownFields):
			all = append(all, object+"[*]")
		}
	}
	if from.Items != nil && to.Items != nil {
		all = append(all, lost(from.Items.Schema, to.Items.Schema, object+"[*]")...)
	}
	return all
}

func isTrue(b *bool) bool { return b != nil && *b }

func orRoot(object string) string {
	if object == "" {
		return "the root"
	}
	return object
}
