// SPDX-License-Identifier: Apache-2.0

// Command trimcrds completes the CustomResourceDefinitions of a directory that controller-gen wrote:
//
//	go run ./trimcrds DIRECTORY
//
// It removes the descriptions of fields from deprecated versions, which are twice as large with
// them; the current version has the descriptions of all fields. And the items of an array that
// preserves unknown fields become objects of any fields, for which controller-gen has no marker. A definition of several
// versions names the operator's webhook: without one, the API server would convert nothing and remove fields without a word.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "trimcrds:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("give one directory")
	}
	files, err := filepath.Glob(filepath.Join(args[0], "*.yaml"))
	if err != nil || len(files) == 0 {
		return errors.Join(err, fmt.Errorf("%s has no YAML files", args[0]))
	}
	for _, file := range files {
		if err := trimFile(file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func trimFile(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	trimmed, err := trim(data)
	if err != nil {
		return err
	}
	return os.WriteFile(file, trimmed, 0o644) //nolint:gosec // a source file
}

// trim returns a definition that converts and whose arrays have items, without the descriptions of deprecated versions.
func trim(data []byte) ([]byte, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, crd); err != nil {
		return nil, err
	}
	object := map[string]any{}
	if err := yaml.Unmarshal(data, &object); err != nil {
		return nil, err
	}
	spec, _ := object["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for i, v := range crd.Spec.Versions {
		if i >= len(versions) {
			continue
		}
		version, _ := versions[i].(map[string]any)
		schema, _ := version["schema"].(map[string]any)
		root, _ := schema["openAPIV3Schema"].(map[string]any)
		openItems(root)
		if v.Deprecated {
			strip(root)
			root["description"] = "Deprecated. The fields are described in the current version."
		}
	}
	if len(crd.Spec.Versions) > 1 {
		spec["conversion"] = conversion()
	}
	out, err := yaml.Marshal(object)
	return append([]byte("---\n"), out...), err
}

// conversion is by the webhook of the operator that `fairlead install --operator` installs. The API server fills in the rest.
func conversion() map[string]any {
	service := map[string]any{"namespace": "fairlead-system", "name": "fairlead-operator", "path": "/convert", "port": 443}
	return map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"clientConfig": map[string]any{"service": service}, "conversionReviewVersions": []any{"v1"},
	}}
}

// strip removes descriptions from a schema; a property named description is a schema, no text.
func strip(value any) {
	switch v := value.(type) {
	case map[string]any:
		if _, isText := v["description"].(string); isText {
			delete(v, "description")
		}
		for _, inner := range v {
			strip(inner)
		}
	case []any:
		for _, inner := range v {
			strip(inner)
		}
	}
}

// openItems makes the items of arrays that preserve unknown fields objects that do so. An array
// without a schema of its items is no structural schema.
func openItems(value any) {
	const preserve = "x-kubernetes-preserve-unknown-fields"
	switch v := value.(type) {
	case map[string]any:
		if v["type"] == "array" && v["items"] == nil && v[preserve] == true {
			delete(v, preserve)
			v["items"] = map[string]any{"type": "object", preserve: true}
		}
		for _, inner := range v {
			openItems(inner)
		}
	case []any:
		for _, inner := range v {
			openItems(inner)
		}
	}
}
