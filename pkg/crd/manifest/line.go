// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Line returns the line of the file on which a field stands, such as
// "spec.versions[0].schema.openAPIV3Schema.properties[spec]"; that of the closest parent
// if the field is missing.
func (d *Document) Line(path string) int {
	line := d.line
	if d.node == nil {
		return max(line, 1)
	}
	if d.Item >= 0 {
		line = d.line + d.node.Line - 1
	}
	node := d.node
	for _, element := range Elements(path) {
		key, value := lookup(node, element)
		if value == nil {
			break
		}
		node = value
		line = d.line + value.Line - 1
		if key != nil {
			line = d.line + key.Line - 1
		}
	}
	return max(line, 1)
}

// Elements cuts the path of a field as the API server prints it: names after dots, keys
// and indexes in brackets.
func Elements(path string) []string {
	var out []string
	for path != "" {
		switch path[0] {
		case '.':
			path = path[1:]
		case '[':
			end := strings.IndexByte(path, ']')
			if end < 0 {
				return append(out, path[1:])
			}
			out, path = append(out, path[1:end]), path[end+1:]
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				return append(out, path)
			}
			out, path = append(out, path[:end]), path[end:]
		}
	}
	return out
}

func find(node *yaml.Node, element string) *yaml.Node {
	_, value := lookup(node, element)
	return value
}

// lookup returns the key, if there is one, and the value below a node.
func lookup(node *yaml.Node, element string) (key, value *yaml.Node) {
	if node == nil {
		return nil, nil
	}
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == element {
				return node.Content[i], node.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(element); err == nil && i >= 0 && i < len(node.Content) {
			return nil, node.Content[i]
		}
	}
	return nil, nil
}
