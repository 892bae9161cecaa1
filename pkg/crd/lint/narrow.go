// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"encoding/json"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// delta is something that a schema permits or keeps and another one does not.
type delta struct {
	level   Level
	rule    string
	field   string
	object  string // the path in objects, such as .spec.replicas
	message string
}

// comparison collects deltas.
type comparison struct{ deltas []delta }

// narrow lists what a schema takes away from an older one. Path is that of the new schema
// in the definition, object that of the value in objects.
func narrow(old, current *apiextensionsv1.JSONSchemaProps, path *field.Path, object string) []delta {
	c := &comparison{}
	if old != nil && current != nil {
		c.node(old, current, path, object, true)
	}
	return c.deltas
}

func (c *comparison) add(level Level, rule string, path *field.Path, object, format string, args ...any) {
	if object == "" {
		object = "the root"
	}
	c.deltas = append(c.deltas, delta{level, rule, path.String(), object, object + ": " + fmt.Sprintf(format, args...)})
}

// node compares one value; root says that it is the whole object.
func (c *comparison) node(old, current *apiextensionsv1.JSONSchemaProps, path *field.Path, object string, root bool) {
	if old.Type != current.Type || old.XIntOrString != current.XIntOrString {
		if !widens(old, current) {
			c.add(Error, "type-changed", path.Child("type"), object, "the type changes from %s to %s", typeName(old), typeName(current))
			return
		}
	}
	if isTrue(old.XPreserveUnknownFields) && !isTrue(current.XPreserveUnknownFields) {
		c.add(Error, "unknown-fields", path, object, "data that the schema does not declare is removed")
	}
	if old.Nullable && !current.Nullable {
		c.add(Error, "nullable-removed", path, object, "null is no longer a value")
	}
	if old.XEmbeddedResource != current.XEmbeddedResource && current.XEmbeddedResource {
		c.add(Error, "tightened", path.Child("x-kubernetes-embedded-resource"), object, "the value must be a whole Kubernetes object")
	}
	if old.Default != nil && !sameJSON(old.Default, current.Default) {
		c.add(Warning, "default-changed", path.Child("default"), object, "the default changes from %s to %s", raw(old.Default), raw(current.Default))
	}
	c.values(old, current, path, object)
	c.combinations(old, current, path, object)
	c.rules(old, current, path, object)
	c.lists(old, current, path, object)
	c.children(old, current, path, object, root)
}

// widens reports whether each value of the old type is one of the new type.
func widens(old, current *apiextensionsv1.JSONSchemaProps) bool {
	if current.XIntOrString {
		return old.Type == "integer" || old.Type == "string" || old.XIntOrString
	}
	return (old.Type == "integer" && current.Type == "number") || (current.Type == "" && isTrue(current.XPreserveUnknownFields))
}

func typeName(s *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case s.XIntOrString:
		return "int-or-string"
	case s.Type == "":
		return "any"
	}
	return s.Type
}

// sameJSON reports whether two texts have the same value.
func sameJSON(a, b *apiextensionsv1.JSON) bool {
	if a == nil || b == nil {
		return a == b
	}
	var va, vb any
	return json.Unmarshal(a.Raw, &va) == nil && json.Unmarshal(b.Raw, &vb) == nil && apiequality.Semantic.DeepEqual(va, vb)
}

func raw(j *apiextensionsv1.JSON) string {
	if j == nil {
		return "none"
	}
	return string(j.Raw)
}

// children compares the fields, items and further fields of a value.
func (c *comparison) children(old, current *apiextensionsv1.JSONSchemaProps, path *field.Path, object string, root bool) {
	for _, name := range names(old.Properties) {
		o := old.Properties[name]
		n, ok := current.Properties[name]
		switch {
		case ok:
			c.node(&o, &n, path.Child("properties").Key(name), object+"."+name, false)
		case isTrue(current.XPreserveUnknownFields):
			// kept, and no longer checked
		case current.AdditionalProperties != nil && current.AdditionalProperties.Schema != nil:
			c.node(&o, current.AdditionalProperties.Schema, path.Child("additionalProperties"), object+"."+name, false)
		default:
			c.add(Error, "field-removed", path.Child("properties"), object+"."+name, "the schema no longer declares the field")
		}
	}
	c.required(old, current, path, object, root)
	c.declared(old, current, path, object, root)
	c.keysAndItems(old, current, path, object)
}

// declared compares fields and keys that the schema did not declare with what they could be.
func (c *comparison) declared(old, current *apiextensionsv1.JSONSchemaProps, path *field.Path, object string, root bool) {
	before := &apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: old.XPreserveUnknownFields}
	switch {
	case old.AdditionalProperties != nil && old.AdditionalProperties.Schema != nil:
		before = old.AdditionalProperties.Schema
	case !isTrue(old.XPreserveUnknownFields):
		return // there was no such data
	}
	for _, name := range names(current.Properties) {
		if _, found := old.Properties[name]; !found && !((root || old.XEmbeddedResource) && isHeader(name)) {
			n := current.Properties[name]
			c.value(before, &n, path.Child("properties").Key(name), object+"."+name)
		}
	}
	if old.AdditionalProperties == nil && current.AdditionalProperties != nil && current.AdditionalProperties.Schema != nil {
		c.value(before, current.AdditionalProperties.Schema, path.Child("additionalProperties"), object+"[*]")
	}
}

// value compares a value that was not declared.
func (c *comparison) value(old, current *apiextensionsv1.JSONSchemaProps, path *field.Path, object string) {
	if !isAny(old) || isAny(current) {
		c.node(old, current, path, object, false)
		return
	}
	c.add(Error, "tightened", path.Child("type"), object, "any value was permitted, and only type %s is now"+ratcheted, typeName(current))
	if prunes(current) {
		c.add(Error, "unknown-fields", path, object, "data that the schema does not declare is removed")
	}
}

func isAny(s *apiextensionsv1.JSONSchemaProps) bool {
	return s.Type == "" && !s.XIntOrString && isTrue(s.XPreserveUnknownFields)
}

// prunes reports whether undeclared fields are removed from a value, or from one in it.
func prunes(s *apiextensionsv1.JSONSchemaProps) bool {
	if s.Type == "object" && !isTrue(s.XPreserveUnknownFields) && s.AdditionalProperties == nil {
		return true
	}
	for _, p := range s.Properties {
		if prunes(&p) {
			return true
		}
	}
	return s.Items != nil && s.Items.Schema != nil && prunes(s.Items.Schema) ||
		s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil && prunes(s.AdditionalProperties.Schema)
}

// isHeader reports whether the API server itself defines a field of whole objects.
func isHeader(name string) bool { return name == "apiVersion" || name == "kind" || name == "metadata" }

// keysAndItems compares the schemas of undeclared keys and of items.
func (c *comparison) keysAndItems(old, current *apiextensionsv1.JSONSchemaProps, path *field.Path, object string) {
	if old.AdditionalProperties != nil {
		switch {
		case current.AdditionalProperties == nil && !isTrue(current.XPreserveUnknownFields):
			c.add(Error, "field-removed", path.Child("additionalProperties"), object+"[*]", "keys that the schema does not declare are removed")
		case current.AdditionalProperties != nil && old.AdditionalProperties.Schema != nil && current.AdditionalProperties.Schema != nil:
			c.node(old.AdditionalProperties.Schema, current.AdditionalProperties.Schema, path.Child("additionalProperties"), object+"[*]", false)
		}
	}
	if old.Items != nil && current.Items != nil && old.Items.Schema != nil && current.Items.Schema != nil {
		c.node(old.Items.Schema, current.Items.Schema, path.Child("items"), object+"[*]", false)
	}
}

func (c *comparison) required(old, current *apiextensionsv1.JSONSchemaProps, path *field.Path, object string, root bool) {
	for i, name := range current.Required {
		if slices.Contains(old.Required, name) || (root && isHeader(name)) {
			continue
		}
		if p, ok := current.Properties[name]; ok && p.Default != nil {
			continue
		}
		c.add(Error, "required-added", path.Child("required").Index(i), object+"."+name, "the field becomes required")
	}
}

// lists compares how items are told apart.
func (c *comparison) lists(old, current *apiextensionsv1.JSONSchemaProps, path *field.Path, object string) {
	kind := func(p *string, otherwise string) string {
		if p == nil {
			return otherwise
		}
		return *p
	}
	if o, n := kind(old.XListType, "atomic"), kind(current.XListType, "atomic"); o != n && current.Type == "array" {
		level := Warning
		if n != "atomic" {
			level = Error // existing lists may hold duplicates
		}
		c.add(level, "list-type-changed", path.Child("x-kubernetes-list-type"), object, "the list type changes from %s to %s", o, n)
	} else if !sets.New(old.XListMapKeys...).Equal(sets.New(current.XListMapKeys...)) {
		c.add(Error, "list-type-changed", path.Child("x-kubernetes-list-map-keys"), object, "the map keys change from %v to %v", old.XListMapKeys, current.XListMapKeys)
	}
	if o, n := kind(old.XMapType, "granular"), kind(current.XMapType, "granular"); o != n {
		c.add(Warning, "list-type-changed", path.Child("x-kubernetes-map-type"), object, "the map type changes from %s to %s", o, n)
	}
}

func (c *comparison) combinations(old, current *apiextensionsv1.JSONSchemaProps, path *field.Path, object string) {
	check := func(name string, o, n any, used bool) {
		if used && !apiequality.Semantic.DeepEqual(o, n) {
			c.add(Warning, "combination-changed", path.Child(name), object, "%s changes", name)
		}
	}
	check("allOf", old.AllOf, current.AllOf, len(current.AllOf) > 0)
	check("anyOf", old.AnyOf, current.AnyOf, len(current.AnyOf) > 0)
	check("oneOf", old.OneOf, current.OneOf, len(current.OneOf) > 0)
	check("not", old.Not, current.Not, current.Not != nil)
}

func (c *comparison) rules(old, current *apiextensionsv1.JSONSchemaProps, path *field.Path, object string) {
	known := map[string]bool{}
	for _, r := range old.XValidations {
		known[r.Rule] = true
	}
	for i, r := range current.XValidations {
		if !known[r.Rule] {
			c.add(Warning, "cel-added", path.Child("x-kubernetes-validations").Index(i).Child("rule"), object, "the rule %q is new", r.Rule)
		}
	}
}
