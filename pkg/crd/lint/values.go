// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ratcheted ends a message about a constraint that the API server does not apply to what
// an update leaves as it is.
const ratcheted = "; stored values that violate it stay until they are changed"

// widerFormats are formats of numbers that permit all values of another format.
var widerFormats = map[string]string{"int32": "int64", "float": "double"}

// values compares what constrains a single value.
func (c *comparison) values(old, current *apiextensionsv1.JSONSchemaProps, path *field.Path, object string) {
	tighten := func(name, format string, args ...any) {
		c.add(Error, "tightened", path.Child(name), object, format+ratcheted, args...)
	}
	c.enum(old, current, path, object)
	patterns(tighten, old, current)
	bounds(tighten, old, current)
}

// patterns compares patterns and formats.
func patterns(tighten tightenFunc, old, current *apiextensionsv1.JSONSchemaProps) {
	if current.Pattern != "" && current.Pattern != old.Pattern {
		if old.Pattern == "" {
			tighten("pattern", "the pattern %q is new", current.Pattern)
		} else {
			tighten("pattern", "the pattern changes from %q to %q", old.Pattern, current.Pattern)
		}
	}
	if current.Format != "" && current.Format != old.Format && widerFormats[old.Format] != current.Format {
		tighten("format", "the format %q is new", current.Format)
	}
}

// bounds compares limits of sizes and numbers.
func bounds(tighten tightenFunc, old, current *apiextensionsv1.JSONSchemaProps) {
	upper(tighten, "maxLength", old.MaxLength, current.MaxLength)
	upper(tighten, "maxItems", old.MaxItems, current.MaxItems)
	upper(tighten, "maxProperties", old.MaxProperties, current.MaxProperties)
	lower(tighten, "minLength", old.MinLength, current.MinLength)
	lower(tighten, "minItems", old.MinItems, current.MinItems)
	lower(tighten, "minProperties", old.MinProperties, current.MinProperties)
	upper(tighten, "maximum", old.Maximum, current.Maximum)
	lower(tighten, "minimum", old.Minimum, current.Minimum)
	if current.ExclusiveMaximum && !old.ExclusiveMaximum && old.Maximum != nil {
		tighten("exclusiveMaximum", "the maximum is no longer permitted")
	}
	if current.ExclusiveMinimum && !old.ExclusiveMinimum && old.Minimum != nil {
		tighten("exclusiveMinimum", "the minimum is no longer permitted")
	}
	if m := current.MultipleOf; m != nil && (old.MultipleOf == nil || *m != *old.MultipleOf) {
		tighten("multipleOf", "values must be multiples of %v", *m)
	}
}

type tightenFunc func(name, format string, args ...any)

func upper[T cmp.Ordered](tighten tightenFunc, name string, old, current *T) {
	switch {
	case current == nil:
	case old == nil:
		tighten(name, "%s %v is new", name, *current)
	case *current < *old:
		tighten(name, "%s falls from %v to %v", name, *old, *current)
	}
}

func lower[T cmp.Ordered](tighten tightenFunc, name string, old, current *T) {
	switch {
	case current == nil:
	case old == nil:
		tighten(name, "%s %v is new", name, *current)
	case *current > *old:
		tighten(name, "%s rises from %v to %v", name, *old, *current)
	}
}

func (c *comparison) enum(old, current *apiextensionsv1.JSONSchemaProps, path *field.Path, object string) {
	if len(current.Enum) == 0 {
		return
	}
	if len(old.Enum) == 0 {
		c.add(Error, "tightened", path.Child("enum"), object, "only the values of enum are permitted"+ratcheted)
		return
	}
	for _, value := range old.Enum {
		same := func(v apiextensionsv1.JSON) bool { return string(v.Raw) == string(value.Raw) }
		if !slices.ContainsFunc(current.Enum, same) {
			c.add(Error, "tightened", path.Child("enum"), object, "the value %s is no longer permitted"+ratcheted, value.Raw)
		}
	}
}
