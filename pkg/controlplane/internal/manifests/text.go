// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// errNotBlock makes the caller try the next editor: the list is not written as a
// block sequence, one item after the other.
var errNotBlock = errors.New("not a block sequence")

// insertText inserts lines after the last item of each list.
func insertText(manifest []byte, add Additions) ([]byte, error) {
	lists, err := add.lists()
	if err != nil {
		return nil, err
	}
	for _, l := range lists {
		// Every insertion moves the lines below it, so parse the positions
		// again.
		sequence, err := findList(manifest, l)
		if err != nil {
			return nil, err
		}
		lines := splitLines(manifest)
		column := sequence.Column - 1
		last := sequence.Content[len(sequence.Content)-1]
		var text strings.Builder
		for _, item := range l.items {
			block, err := sequenceItem(item, column)
			if err != nil {
				return nil, err
			}
			text.WriteString(block)
		}
		at := itemEnd(lines, last.Line-1, column)
		if at > 0 && !strings.HasSuffix(lines[at-1], "\n") {
			lines[at-1] += "\n"
		}
		manifest = []byte(strings.Join(slices.Insert(lines, at, text.String()), ""))
	}
	return manifest, nil
}

// deleteText deletes the lines of items that are unchanged since they were
// added.
func deleteText(manifest []byte, add Additions) ([]byte, error) {
	lists, err := add.lists()
	if err != nil {
		return nil, err
	}
	for _, l := range lists {
		sequence, err := findList(manifest, l)
		if err != nil {
			return nil, err
		}
		lines, column := splitLines(manifest), sequence.Column-1
		left := len(sequence.Content)
		for _, item := range slices.Backward(sequence.Content) {
			if !equalsOne(item, l.items) {
				continue
			}
			start := item.Line - 1
			if !strings.HasPrefix(strings.TrimLeft(lines[start], " "), "-") {
				return nil, errNotBlock
			}
			lines = slices.Delete(lines, start, itemEnd(lines, start, column))
			left--
		}
		if left == 0 {
			return nil, errNotBlock // the key would be left without a value
		}
		manifest = []byte(strings.Join(lines, ""))
	}
	return manifest, nil
}

func equalsOne(node *yaml.Node, items []any) bool {
	text, err := yaml.Marshal(node)
	if err != nil {
		return false
	}
	var v any
	return sigsyaml.Unmarshal(text, &v) == nil && contains(items, v)
}

// itemEnd returns the index of the line after an item of a block sequence whose
// dashes are in the given column: the line after the last line that is indented
// further. Blank lines and comments that follow belong to the next element.
func itemEnd(lines []string, start, column int) int {
	end := start + 1
	for i := end; i < len(lines); i++ {
		text := strings.TrimLeft(lines[i], " ")
		if strings.TrimSpace(text) == "" {
			continue
		}
		if len(lines[i])-len(text) <= column {
			break
		}
		end = i + 1
	}
	return end
}

// sequenceItem formats an item at the given column, as kubeadm would.
func sequenceItem(item any, column int) (string, error) {
	text, err := sigsyaml.Marshal(item)
	if err != nil {
		return "", err
	}
	indent, out := strings.Repeat(" ", column), strings.Builder{}
	for i, line := range splitLines(text) {
		lead := "  "
		if i == 0 {
			lead = "- "
		}
		out.WriteString(indent + lead + line)
	}
	return out.String(), nil
}

func splitLines(text []byte) []string {
	lines := strings.SplitAfter(string(text), "\n")
	if len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// findList returns the node of a list that is not empty and is written as a
// block sequence.
func findList(manifest []byte, l list) (*yaml.Node, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(manifest, &document); err != nil {
		return nil, err
	}
	parent := nodeParent(&document, l)
	sequence := child(parent, l.key)
	if sequence == nil || sequence.Kind != yaml.SequenceNode || sequence.Style&yaml.FlowStyle != 0 || len(sequence.Content) == 0 {
		return nil, errNotBlock
	}
	return sequence, nil
}

// nodeParent returns the mapping that contains, or should contain, the list.
func nodeParent(document *yaml.Node, l list) *yaml.Node {
	if len(document.Content) == 0 {
		return nil
	}
	spec := child(document.Content[0], "spec")
	if !l.inContainer {
		return spec
	}
	containers := child(spec, "containers")
	if containers == nil {
		return nil
	}
	for _, c := range containers.Content {
		if name := child(c, "name"); name != nil && name.Value == APIServer {
			return c
		}
	}
	return nil
}

func child(mapping *yaml.Node, key string) *yaml.Node {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// appendNodes edits the tree of YAML nodes and writes the whole text again.
// Comments and order survive, the formatting may not. It handles lists that are
// missing, empty or in flow style.
func appendNodes(manifest []byte, add Additions) ([]byte, error) {
	return editNodes(manifest, add, func(parent, sequence *yaml.Node, l list) error {
		if sequence == nil {
			sequence = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
			parent.Content = append(parent.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: l.key}, sequence)
		}
		if sequence.Kind != yaml.SequenceNode { // a null
			*sequence = yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		}
		for _, item := range l.items {
			node := &yaml.Node{}
			if err := node.Encode(item); err != nil {
				return err
			}
			sequence.Content = append(sequence.Content, node)
		}
		return nil
	})
}

func removeNodes(manifest []byte, add Additions) ([]byte, error) {
	return editNodes(manifest, add, func(parent, sequence *yaml.Node, l list) error {
		if sequence == nil {
			return nil
		}
		sequence.Content = slices.DeleteFunc(sequence.Content, func(n *yaml.Node) bool { return equalsOne(n, l.items) })
		if len(sequence.Content) == 0 {
			i := slices.Index(parent.Content, sequence)
			parent.Content = slices.Delete(parent.Content, i-1, i+1)
		}
		return nil
	})
}

func editNodes(manifest []byte, add Additions, edit func(parent, sequence *yaml.Node, l list) error) ([]byte, error) {
	lists, err := add.lists()
	if err != nil {
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(manifest, &document); err != nil {
		return nil, err
	}
	for _, l := range lists {
		parent := nodeParent(&document, l)
		if parent == nil {
			return nil, errNotBlock
		}
		if err := edit(parent, child(parent, l.key), l); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(&document); err != nil {
		return nil, err
	}
	return out.Bytes(), encoder.Close()
}
