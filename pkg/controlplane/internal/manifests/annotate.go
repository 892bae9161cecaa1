// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// EgressHash is the annotation of kube-apiserver's manifest with a hash of the egress
// selector configuration. kube-apiserver reads that file only when it starts, so the
// kubelet must restart it for a new content, although its flags stay. [Remove] removes
// the annotation, too.
const EgressHash = "fairlead.dev/egress-selector-hash"

// Annotate sets an annotation in a manifest and leaves the rest unchanged.
func Annotate(manifest []byte, key, value string) ([]byte, error) {
	return annotations(manifest, key, func(all map[string]any) { all[key] = value }, func(lines []string, all *yaml.Node, at int) []string {
		line := fmt.Sprintf("%s%s: %q\n", strings.Repeat(" ", all.Column-1), key, value)
		if at < 0 {
			return slices.Insert(lines, all.Content[0].Line-1, line)
		}
		lines[at] = line
		return lines
	}, func(metadata *yaml.Node) {
		all := mappingIn(metadata, "annotations")
		if now := child(all, key); now != nil {
			now.Value, now.Style = value, yaml.DoubleQuotedStyle
			return
		}
		all.Content = append(all.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key},
			&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value, Style: yaml.DoubleQuotedStyle})
	})
}

// withoutAnnotation removes an annotation, if the manifest has it.
func withoutAnnotation(manifest []byte, key string) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(manifest, &document); err != nil {
		return nil, err
	}
	if len(document.Content) == 0 || child(child(child(document.Content[0], "metadata"), "annotations"), key) == nil {
		return manifest, nil
	}
	return annotations(manifest, key, func(all map[string]any) { delete(all, key) }, func(lines []string, all *yaml.Node, at int) []string {
		if len(all.Content) == 2 {
			return nil // the key "annotations" would be left without a value
		}
		return slices.Delete(lines, at, at+1)
	}, func(metadata *yaml.Node) {
		all := child(metadata, "annotations")
		dropKey(all, key)
		if len(all.Content) == 0 {
			dropKey(metadata, "annotations")
		}
	})
}

// annotations edits the annotations of a manifest: as lines of the text if possible, and
// otherwise as nodes, which formats the text again. The argument change makes the same
// edit in decoded values, against which the result is checked. The argument inLines
// receives the index of the line of key, or -1.
func annotations(manifest []byte, key string, change func(map[string]any), inLines func([]string, *yaml.Node, int) []string,
	inNodes func(metadata *yaml.Node)) ([]byte, error) {
	var want map[string]any
	if err := sigsyaml.Unmarshal(manifest, &want); err != nil {
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(manifest, &document); err != nil {
		return nil, err
	}
	if len(want) == 0 || len(document.Content) == 0 {
		return nil, ErrManifest
	}
	changeAnnotations(want, change)
	root := document.Content[0]
	all := child(child(root, "metadata"), "annotations")
	if all != nil && all.Kind == yaml.MappingNode && all.Style&yaml.FlowStyle == 0 && len(all.Content) > 0 {
		at := -1
		for i := 0; i < len(all.Content); i += 2 {
			if all.Content[i].Value == key {
				at = all.Content[i].Line - 1
			}
		}
		if out := []byte(strings.Join(inLines(splitLines(manifest), all, at), "")); sameTree(out, want) {
			return out, nil
		}
	}
	inNodes(mappingIn(root, "metadata"))
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	if err := encoder.Encode(&document); err != nil {
		return nil, err
	}
	if err := encoder.Close(); err != nil {
		return nil, err
	}
	if !sameTree(out.Bytes(), want) {
		return nil, fmt.Errorf("%w: its YAML is written in a way that cannot be edited safely: write metadata.annotations as kubeadm does", ErrManifest)
	}
	return out.Bytes(), nil
}

// changeAnnotations changes the annotations of a decoded manifest.
func changeAnnotations(tree map[string]any, change func(map[string]any)) {
	metadata, _ := tree["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		tree["metadata"] = metadata
	}
	all, _ := metadata["annotations"].(map[string]any)
	if all == nil {
		all = map[string]any{}
	}
	change(all)
	metadata["annotations"] = all
	if len(all) == 0 {
		delete(metadata, "annotations")
	}
}

// dropKey removes a key and its value from a mapping.
func dropKey(mapping *yaml.Node, key string) {
	if value := child(mapping, key); value != nil {
		i := slices.Index(mapping.Content, value)
		mapping.Content = slices.Delete(mapping.Content, i-1, i+1)
	}
}

// mappingIn returns the mapping of a key, and creates it if necessary.
func mappingIn(parent *yaml.Node, key string) *yaml.Node {
	m := child(parent, key)
	switch {
	case m != nil && m.Kind == yaml.MappingNode:
		return m
	case m == nil:
		m = &yaml.Node{}
		parent.Content = append(parent.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, m)
	}
	*m = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"} // it may be a null
	return m
}
