// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"

	"go.yaml.in/yaml/v3"
)

// Annotate sets an annotation in a manifest and leaves the rest unchanged.
func Annotate(manifest []byte, key, value string) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(manifest, &document); err != nil {
		return nil, err
	}
	if len(document.Content) == 0 {
		return nil, ErrManifest
	}
	annotations := mappingIn(mappingIn(document.Content[0], "metadata"), "annotations")
	if now := child(annotations, key); now != nil {
		now.Value, now.Style = value, yaml.DoubleQuotedStyle
	} else {
		annotations.Content = append(annotations.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key},
			&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value, Style: yaml.DoubleQuotedStyle})
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	if err := encoder.Encode(&document); err != nil {
		return nil, err
	}
	return out.Bytes(), encoder.Close()
}

// mappingIn returns the mapping of a key, and creates it if necessary.
func mappingIn(parent *yaml.Node, key string) *yaml.Node {
	if m := child(parent, key); m != nil && m.Kind == yaml.MappingNode {
		return m
	}
	m := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	parent.Content = append(parent.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, m)
	return m
}
