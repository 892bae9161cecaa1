// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// ratcheted ends a message about a constraint that the API server does not apply to what
// an update leaves as it is.
const ratcheted = "; stored values that violate it stay until they are changed"

// constraint is a keyword that limits a single value.
type constraint struct {
	name string
	// copy sets the keyword, with those that it depends on.
	copy func(to, from *apiextensionsv1.JSONSchemaProps)
	// implied reports whether each value that satisfies the old keyword satisfies the new one.
	implied func(old, current *apiextensionsv1.JSONSchemaProps) bool
	show    func(*apiextensionsv1.JSONSchemaProps) string
}

type props = apiextensionsv1.JSONSchemaProps

var constraints = []constraint{
	{"enum", func(to, from *props) { to.Enum = from.Enum }, never, func(s *props) string { return fmt.Sprint(texts(s.Enum)) }},
	{"pattern", func(to, from *props) { to.Pattern = from.Pattern }, func(o, n *props) bool { return samePattern(o.Pattern, n.Pattern) },
		func(s *props) string { return quotedOrNone(s.Pattern) }},
	{"format", func(to, from *props) { to.Format = from.Format }, impliedFormat, func(s *props) string { return quotedOrNone(s.Format) }},
	{"multipleOf", func(to, from *props) { to.MultipleOf = from.MultipleOf }, impliedMultiple, func(s *props) string { return number(s.MultipleOf) }},
	{"maximum", func(to, from *props) { to.Maximum, to.ExclusiveMaximum = from.Maximum, from.ExclusiveMaximum },
		func(o, n *props) bool {
			return atMost(bound(o, o.Maximum, o.ExclusiveMaximum, -1), bound(n, n.Maximum, n.ExclusiveMaximum, -1))
		},
		func(s *props) string { return number(s.Maximum) + exclusive(s.ExclusiveMaximum) }},
	{"minimum", func(to, from *props) { to.Minimum, to.ExclusiveMinimum = from.Minimum, from.ExclusiveMinimum },
		func(o, n *props) bool {
			return atMost(bound(o, o.Minimum, o.ExclusiveMinimum, 1), bound(n, n.Minimum, n.ExclusiveMinimum, 1))
		},
		func(s *props) string { return number(s.Minimum) + exclusive(s.ExclusiveMinimum) }},
	size64("maxLength", -1, func(s *props) **int64 { return &s.MaxLength }),
	size64("minLength", 1, func(s *props) **int64 { return &s.MinLength }),
	size64("maxItems", -1, func(s *props) **int64 { return &s.MaxItems }),
	size64("minItems", 1, func(s *props) **int64 { return &s.MinItems }),
	size64("maxProperties", -1, func(s *props) **int64 { return &s.MaxProperties }),
	size64("minProperties", 1, func(s *props) **int64 { return &s.MinProperties }),
}

// size64 makes the constraint of a size; sign is 1 for lower bounds.
func size64(name string, sign int64, at func(*props) **int64) constraint {
	return constraint{name, func(to, from *props) { *at(to) = *at(from) }, func(old, current *props) bool {
		o, n := *at(old), *at(current)
		if sign > 0 {
			return *n <= 0 || o != nil && *n <= *o || name == "minProperties" && *n <= int64(len(old.Required))
		}
		return o != nil && *o <= *n
	}, func(s *props) string { return number(*at(s)) }}
}

// values compares the sets of values that two schemas permit. A keyword is an error if the
// API server's code refuses a value that it accepted, and a warning if no such value is
// found and the keyword is not known to permit all.
func (c *comparison) values(old, current *props, path *field.Path, object string) {
	var tried []any
	for _, k := range constraints {
		var unset, before, alone props
		k.copy(&before, old)
		k.copy(&alone, current)
		if apiequality.Semantic.DeepEqual(alone, unset) || apiequality.Semantic.DeepEqual(alone, before) {
			continue
		}
		alone.Type, alone.XIntOrString = current.Type, current.XIntOrString
		if k.implied(old, current) || !appliesTo(k.name, old) {
			continue
		}
		change := fmt.Sprintf("%s changes from %s to %s", k.name, k.show(old), k.show(current))
		if old.Type == "array" || old.Type == "object" {
			c.add(Error, "tightened", path.Child(k.name), object, "%s"+ratcheted, change)
			continue
		}
		if tried == nil {
			tried = accepting(old, candidates(old, current))
		}
		lost := refusing(&alone, tried)
		switch {
		case len(lost) > 0:
			c.add(Error, "tightened", path.Child(k.name), object, "%s: for example, %s is no longer permitted"+ratcheted, change, shorten(lost))
		case len(old.Enum) == 0 && old.Type != "boolean":
			c.add(Warning, "constraint-changed", path.Child(k.name), object, "%s, and no value is known that only the old one permits", change)
		}
	}
}

// appliesTo reports whether values of a schema can violate a keyword.
func appliesTo(keyword string, s *props) bool {
	switch s.Type {
	case "string":
		return slices.Contains([]string{"enum", "pattern", "format", "maxLength", "minLength"}, keyword)
	case "integer", "number":
		return slices.Contains([]string{"enum", "format", "multipleOf", "maximum", "minimum"}, keyword)
	case "boolean":
		return keyword == "enum"
	case "array":
		return keyword == "enum" || strings.HasSuffix(keyword, "Items")
	case "object":
		return keyword == "enum" || strings.HasSuffix(keyword, "Properties")
	}
	return true
}

// accepting returns the values that the API server's code accepts.
func accepting(s *props, values []any) (accepted []any) {
	v := validator(s)
	for _, value := range values {
		if v != nil && v.Validate(value).IsValid() {
			accepted = append(accepted, value)
		}
	}
	return accepted
}

// refusing returns, as JSON, the values that the API server's code refuses.
func refusing(s *props, values []any) (refused []string) {
	v := validator(s)
	for _, value := range values {
		if v != nil && !v.Validate(value).IsValid() {
			refused = append(refused, abridged(value))
		}
	}
	return slices.Compact(refused)
}

func validator(s *props) validation.SchemaValidator {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(s, internal, nil); err != nil {
		return nil
	}
	v, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return nil
	}
	return v
}

func never(_, _ *props) bool { return false }

// impliedFormat reports whether a format permits all values, or those of the old one.
func impliedFormat(old, current *props) bool {
	unknown := validation.GetUnrecognizedFormats(&spec.Schema{SchemaProps: spec.SchemaProps{Type: types(current), Format: current.Format}}, environment.DefaultCompatibilityVersion())
	return len(unknown) > 0 || slices.Contains([]string{"int64", "double", "password"}, current.Format) ||
		strings.ReplaceAll(old.Format, "-", "") == strings.ReplaceAll(current.Format, "-", "") && old.Type == current.Type
}

func types(s *props) spec.StringOrArray {
	if s.Type == "" {
		return nil
	}
	return spec.StringOrArray{s.Type}
}

func impliedMultiple(old, current *props) bool {
	of := 1.0
	switch {
	case old.MultipleOf != nil:
		of = *old.MultipleOf
	case old.Type != "integer":
		return false
	}
	ratio := of / *current.MultipleOf
	return ratio == math.Trunc(ratio) && (current.Type != "integer" || *current.MultipleOf == math.Trunc(*current.MultipleOf))
}

// lowerBound is a limit of numbers, and whether the limit itself is excluded.
type lowerBound struct {
	at   float64
	open bool
}

// bound makes a lower bound of a limit; an upper one is multiplied by -1. Integers have the
// limits of their type. The API server refuses all integers if a limit is not one of them.
func bound(s *props, limit *float64, excluded bool, sign float64) lowerBound {
	least := math.Inf(-1)
	if s.Type == "integer" {
		least = math.MinInt64
		if s.Format == "int32" {
			least = math.MinInt32
		}
	}
	switch {
	case limit == nil:
		return lowerBound{least, false}
	case s.Type != "integer":
		return lowerBound{*limit * sign, excluded}
	case *limit != math.Trunc(*limit) || math.Abs(*limit) > -least:
		return lowerBound{math.NaN(), false}
	case excluded:
		return lowerBound{*limit*sign + 1, false}
	}
	return lowerBound{*limit * sign, false}
}

// atMost reports whether the new lower bound permits what the old one does.
func atMost(old, current lowerBound) bool {
	return current.at < old.at || current.at == old.at && (old.open || !current.open)
}

func texts(enum []apiextensionsv1.JSON) (all []string) {
	for _, v := range enum {
		all = append(all, string(v.Raw))
	}
	return all
}

func quotedOrNone(s string) string {
	if s == "" {
		return "none"
	}
	return fmt.Sprintf("%q", s)
}

func number[T cmp.Ordered](n *T) string {
	if n == nil {
		return "none"
	}
	return fmt.Sprint(*n)
}

func exclusive(b bool) string {
	if b {
		return " (exclusive)"
	}
	return ""
}

func abridged(v any) string {
	const most = 40
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if s := string(text); len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s... (%d bytes)", text[:most], len(text))
}
