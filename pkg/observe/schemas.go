// SPDX-License-Identifier: Apache-2.0

package observe

import "encoding/json"

// undescribed is a schema without its documentation, in one form for all that are equal.
func undescribed(schema json.RawMessage) string {
	var parsed any
	if json.Unmarshal(schema, &parsed) != nil {
		return string(schema)
	}
	out, err := json.Marshal(withoutDocs(parsed))
	if err != nil {
		return string(schema)
	}
	return string(out)
}

// withoutDocs drops what documents a schema. The names of properties are no keywords, and values are no schemas.
func withoutDocs(schema any) any {
	switch s := schema.(type) {
	case []any:
		out := make([]any, 0, len(s))
		for _, one := range s {
			out = append(out, withoutDocs(one))
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for keyword, value := range s {
			switch keyword {
			case "description", "title", "example", "externalDocs":
			case "default", "enum":
				out[keyword] = value
			case "properties", "patternProperties", "definitions", "dependencies":
				out[keyword] = eachWithoutDocs(value)
			default:
				out[keyword] = withoutDocs(value)
			}
		}
		return out
	}
	return schema
}

// eachWithoutDocs is for a map from names to schemas.
func eachWithoutDocs(named any) any {
	schemas, ok := named.(map[string]any)
	if !ok {
		return named
	}
	out := map[string]any{}
	for name, schema := range schemas {
		out[name] = withoutDocs(schema)
	}
	return out
}
