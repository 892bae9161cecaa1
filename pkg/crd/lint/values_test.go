// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// TestSetsOfValues proves that a constraint is an error if there is a value that was
// accepted before and is refused after, and none if the same or more values are accepted.
// The values are tried on the API server's validation.
func TestSetsOfValues(t *testing.T) {
	for _, test := range []struct {
		old, current string
		want         string // the level, "" if nothing is found
		lost         any    // accepted before, refused after
		kept         []any  // accepted before and after
	}{
		{"type: integer", "type: integer, format: int64", "", nil, []any{int64(1<<63 - 1), int64(-1 << 63)}},
		{"type: integer", "type: integer, format: int32", "error", int64(1 << 31), []any{int64(1)}},
		{"type: integer, format: int32", "type: integer, minimum: -2147483648", "", nil, []any{int64(-1 << 31)}},
		{"type: integer, maximum: 10", "type: integer, maximum: 11, exclusiveMaximum: true", "", nil, []any{int64(10)}},
		{"type: integer, maximum: 10", "type: integer, maximum: 10, exclusiveMaximum: true", "error", int64(10), nil},
		{"type: integer, minimum: 0, exclusiveMinimum: true", "type: integer, minimum: 1", "", nil, []any{int64(1)}},
		{"type: integer, minimum: 1", "type: integer, minimum: 0.5", "error", int64(1), nil},
		{"type: number, minimum: 1", "type: number, minimum: 1, exclusiveMinimum: true", "error", int64(1), nil},
		{"type: number, maximum: 9", "type: number, maximum: 10, exclusiveMaximum: true", "", nil, []any{9.0}},
		{"type: number", "type: number, format: double", "", nil, []any{1e19, 5.0, 1e300}},
		{"type: number, format: float", "type: number, format: double", "", nil, []any{1e19}},
		{"type: integer, multipleOf: 4", "type: integer, multipleOf: 2", "", nil, []any{int64(8)}},
		{"type: integer", "type: integer, multipleOf: 1", "", nil, []any{int64(7)}},
		{"type: integer, multipleOf: 2", "type: integer, multipleOf: 4", "error", int64(2), []any{int64(8)}},
		{"type: integer, maximum: 7, multipleOf: 5", "type: integer, maximum: 6, multipleOf: 5", "warning", nil, []any{int64(5)}},
		{"type: string", "type: string, format: quantity", "", nil, []any{"x"}},
		{"type: string", "type: string, format: password", "", nil, []any{"x", ""}},
		{"type: string, format: date-time", "type: string, format: datetime", "", nil, []any{"2006-01-02T15:04:05Z"}},
		{"type: string", "type: string, format: date-time", "error", "a", []any{"2006-01-02T15:04:05Z"}},
		{"type: string, format: date-time", "type: string, format: date", "error", "2006-01-02T15:04:05Z", nil},
		{"type: string, format: uuid4", "type: string, format: uuid", "warning", nil, nil},
		{"type: object", "type: object, minProperties: 0", "", nil, []any{map[string]any{}}},
		{"type: object", "type: object, minProperties: 1", "error", map[string]any{}, nil},
		{"type: object, required: [a]", "type: object, minProperties: 1, required: [a]", "", nil, []any{map[string]any{"a": "b"}}},
		{"type: string", "type: string, minLength: 0", "", nil, []any{""}},
		{"type: string", "type: string, minLength: 1", "error", "", []any{"a"}},
		{"type: string, maxLength: 5", "type: string, maxLength: 3", "error", "aaaa", []any{"aaa"}},
		{"type: string, maxLength: 3", "type: string, maxLength: 5", "", nil, []any{"aaa"}},
		{"type: string, maxLength: 63, pattern: '^x-[0-9a-f]+$'", "type: string, maxLength: 20, pattern: '^x-[0-9a-f]+$'", "error", "x-" + strings.Repeat("0", 20), nil},
		{"type: string, maxLength: 5, pattern: ^a$", "type: string, maxLength: 3, pattern: ^a$", "warning", nil, []any{"a"}},
		{"type: array, items: {type: string}", "type: array, items: {type: string}, minItems: 0", "", nil, []any{[]any{}}},
		{"type: array, items: {type: string}", "type: array, items: {type: string}, maxItems: 0", "error", []any{"a"}, nil},
		{"type: string, pattern: '^http(s)?://.+$'", "type: string, pattern: '^https?://.+$'", "", nil, []any{"http://a", "https://a"}},
		{"type: string, pattern: '^http(s)?://.+$'", "type: string, pattern: '^(http|https|socks5)://.+$'", "warning", nil, []any{"http://a", "https://a"}},
		{"type: string, pattern: '^(http|https|socks5)://.+$'", "type: string, pattern: '^http(s)?://.+$'", "error", "socks5://a", []any{"https://a"}},
		{"type: string, pattern: ^a$", "type: string, pattern: '^[ab]$'", "warning", nil, []any{"a"}},
		{"type: string, pattern: '^[ab]$'", "type: string, pattern: ^a$", "error", "b", []any{"a"}},
		{"type: string", "type: string, pattern: ^a", "error", "b", []any{"a"}},
		{"type: string, enum: [ab, ac]", "type: string, enum: [ab, ac], pattern: ^a", "", nil, []any{"ab"}},
		{"type: string, enum: [ab, bc]", "type: string, enum: [ab, bc], pattern: ^a", "error", "bc", []any{"ab"}},
		{"type: string, enum: [a, b]", "type: string, enum: [b, a, c]", "", nil, []any{"a", "b"}},
		{"type: string, enum: [a, b]", "type: string, enum: [a]", "error", "b", []any{"a"}},
		{"type: string, enum: [a, b], maxLength: 5", "type: string, enum: [a, b], maxLength: 1", "", nil, []any{"a"}},
		{"type: string", "type: string, enum: [a]", "error", "b", []any{"a"}},
		{"type: boolean", "type: boolean, enum: [true, false]", "", nil, []any{true, false}},
		{"type: boolean", "type: boolean, enum: [true]", "error", false, []any{true}},
		{"type: number, enum: [1, 2]", "type: number, enum: [1.0, 2.0]", "", nil, []any{int64(1), 2.0}},
		{"type: integer", "type: integer, maxLength: 3", "", nil, []any{int64(12345)}},
		{"x-kubernetes-int-or-string: true", "x-kubernetes-int-or-string: true, maximum: 5", "error", int64(6), []any{"a", int64(5)}},
		{"x-kubernetes-int-or-string: true", "x-kubernetes-int-or-string: true, pattern: ^a", "error", "b", []any{"a", int64(5)}},
	} {
		t.Run(test.old+" to "+test.current, func(t *testing.T) {
			old, current := schemaOf(t, test.old), schemaOf(t, test.current)
			if got := accepting(old, test.kept); len(got) != len(test.kept) {
				t.Fatalf("the old schema accepts %v of %v", got, test.kept)
			}
			if got := accepting(current, test.kept); len(got) != len(test.kept) {
				t.Errorf("the new schema accepts %v of %v", got, test.kept)
			}
			if test.lost != nil && (len(accepting(old, []any{test.lost})) != 1 || len(accepting(current, []any{test.lost})) != 0) {
				t.Errorf("%v is not lost", test.lost)
			}
			var levels, messages []string
			for _, d := range narrow(old, current, field.NewPath("x"), ".x") {
				levels, messages = append(levels, string(d.level)), append(messages, d.message)
			}
			if got := strings.Join(slices.Compact(levels), " "); got != test.want {
				t.Errorf("found %q, want %q: %s", got, test.want, strings.Join(messages, "\n"))
			}
		})
	}
}

// TestSameMeaning proves that texts with the same meaning are no change.
func TestSameMeaning(t *testing.T) {
	for old, current := range map[string]string{
		"type: object, default: {a: 1, b: 2}":                                          "type: object, default: {b: 2, a: 1}",
		"type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [a, b]": "type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [b, a]",
	} {
		if got := narrow(schemaOf(t, old), schemaOf(t, current), field.NewPath("x"), ".x"); len(got) > 0 {
			t.Errorf("%s to %s: %v", old, current, got)
		}
	}
}

func schemaOf(t *testing.T, text string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	s := &apiextensionsv1.JSONSchemaProps{}
	if err := yaml.UnmarshalStrict([]byte("{"+text+"}"), s); err != nil {
		t.Fatal(err)
	}
	return s
}
