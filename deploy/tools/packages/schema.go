package main

import "encoding/json"

// JSON Schemas of the chart's values. They are strict: Helm itself would drop a key
// that the chart does not know, and a release would silently be another one than
// was asked for.
var (
	boolean  = map[string]any{"type": "boolean"}
	image    = map[string]any{"type": "string", "pattern": `^[^\s]+$`}
	host     = map[string]any{"type": "string", "pattern": `^[^\s/]*$`}
	replicas = map[string]any{"type": "integer", "minimum": 1}
	labels   = map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}}

	// quantity is Kubernetes' own pattern, without a sign.
	quantity = map[string]any{
		"type":    []string{"string", "number"},
		"pattern": `^(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`,
		"minimum": 0,
	}
	amounts   = map[string]any{"type": "object", "additionalProperties": quantity}
	resources = strict(map[string]any{"requests": amounts, "limits": amounts})

	tolerations = map[string]any{"type": "array", "items": strict(map[string]any{
		"key":               map[string]any{"type": "string"},
		"operator":          map[string]any{"enum": []string{"Equal", "Exists", "Lt", "Gt"}},
		"value":             map[string]any{"type": "string"},
		"effect":            map[string]any{"enum": []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}},
		"tolerationSeconds": map[string]any{"type": "integer"},
	})}
)

// strict is an object with these keys and no other.
func strict(properties map[string]any) map[string]any {
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
}

// schema writes values.schema.json, by which Helm checks values before it renders.
func schema() ([]byte, error) {
	// What Helm gives to every chart that is part of another one.
	root := strict(map[string]any{"global": map[string]any{"type": "object"}})
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	sections := []map[string]any{root}
	for _, v := range allValues() {
		sections = sections[:v.depth+1]
		s := v.schema
		if v.value == nil {
			s = strict(map[string]any{})
			sections = append(sections, s)
		}
		section := sections[v.depth]
		properties, _ := section["properties"].(map[string]any)
		properties[v.name] = s
		if v.required() {
			names, _ := section["required"].([]string)
			section["required"] = append(names, v.name)
		}
	}
	data, err := json.MarshalIndent(root, "", "  ")
	return append(data, '\n'), err
}
