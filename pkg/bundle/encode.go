// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
)

// EncodeYAML encodes an object as a manifest. It leaves out fields that only
// the Go types add (status, empty creation timestamps).
func EncodeYAML(o component.Object) ([]byte, error) {
	content, err := Manifest(o)
	if err != nil {
		return nil, err
	}
	data, err := yaml.Marshal(content.Object)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", describe(o), err)
	}
	return data, nil
}

// EncodeList encodes objects as one v1 List in JSON, indented, which kubectl
// apply takes.
func EncodeList(objects []component.Object) ([]byte, error) {
	items := make([]any, 0, len(objects))
	for _, o := range objects {
		content, err := Manifest(o)
		if err != nil {
			return nil, err
		}
		items = append(items, content.Object)
	}
	data, err := json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "List", "items": items}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode list: %w", err)
	}
	return append(data, '\n'), nil
}

// Manifest converts an object to what EncodeYAML writes.
func Manifest(o component.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", describe(o), err)
	}
	delete(content, "status")
	for _, path := range [][]string{{"metadata"}, {"spec", "template", "metadata"}} {
		unstructured.RemoveNestedField(content, append(path, "creationTimestamp")...)
	}
	for _, path := range [][]string{{"spec", "strategy"}, {"spec", "updateStrategy"}} {
		if m, found, err := unstructured.NestedMap(content, path...); err == nil && found && len(m) == 0 {
			unstructured.RemoveNestedField(content, path...)
		}
	}
	return &unstructured.Unstructured{Object: content}, nil
}

func describe(o component.Object) string {
	return o.GetObjectKind().GroupVersionKind().Kind + " " + o.GetName()
}
