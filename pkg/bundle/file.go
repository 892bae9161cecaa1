// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion"
	apiv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// What a file says in its first lines. It is the object that kubectl apply takes.
const (
	// APIVersion of the files that Encode writes.
	APIVersion = conversion.V1beta1
	// Kind of the object.
	Kind = "Bundle"
	// ObjectName is the only name that the object may have: a cluster has one bundle.
	ObjectName = "default"
)

// DeprecatedVersion is the apiVersion of older files, which Load still reads.
const DeprecatedVersion = conversion.V1alpha1

// Warnings returns what to tell the author of a file that Load reads.
func Warnings(data []byte) []string {
	var t metav1.TypeMeta
	if document, err := onlyDocument(data); err == nil && yaml.Unmarshal(document, &t) == nil && t.APIVersion == DeprecatedVersion {
		return []string{fmt.Sprintf("%s %s is deprecated; use %s %s", DeprecatedVersion, Kind, APIVersion, Kind)}
	}
	return nil
}

// Encode writes a bundle as the object that Load reads.
func Encode(b *v1alpha1.Bundle) ([]byte, error) {
	text, err := json.Marshal(map[string]any{
		"apiVersion": DeprecatedVersion, "kind": Kind, "metadata": map[string]any{"name": ObjectName}, "spec": b,
	})
	if err != nil {
		return nil, fmt.Errorf("encode the bundle: %w", err)
	}
	var object map[string]any
	if err := utiljson.Unmarshal(text, &object); err != nil {
		return nil, fmt.Errorf("encode the bundle: %w", err)
	}
	if err := conversion.Convert(object, APIVersion); err != nil {
		return nil, fmt.Errorf("encode the bundle: %w", err)
	}
	data, err := yaml.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode the bundle: %w", err)
	}
	return data, nil
}

// decodeVersion reads an object of either version, strictly, and returns its metadata
// and its spec as package v1alpha1 has it.
func decodeVersion(raw []byte) (*metav1.ObjectMeta, *v1alpha1.Bundle, error) {
	var t metav1.TypeMeta
	if err := json.Unmarshal(raw, &t); err != nil {
		return nil, nil, err
	}
	if t.APIVersion == DeprecatedVersion {
		old := &apiv1alpha1.Bundle{}
		err := unmarshalStrict(raw, old)
		return &old.ObjectMeta, &old.Spec.Bundle, err
	}
	hub := &v1beta1.Bundle{}
	if err := unmarshalStrict(raw, hub); err != nil {
		return nil, nil, err
	}
	spec, err := convertSpec(raw)
	return &hub.ObjectMeta, spec, err
}

func unmarshalStrict(raw []byte, into any) error {
	strict, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		return err
	}
	return utilerrors.NewAggregate(strict)
}

// convertSpec returns the spec of a v1beta1 object as package v1alpha1 has it.
func convertSpec(raw []byte) (*v1alpha1.Bundle, error) {
	var object map[string]any
	if err := utiljson.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	if err := conversion.Convert(object, DeprecatedVersion); err != nil {
		return nil, err
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	old := &apiv1alpha1.Bundle{}
	if err := json.Unmarshal(text, old); err != nil {
		return nil, err
	}
	if lost := old.Annotations[conversion.LostV1beta1]; lost != "" {
		return nil, fmt.Errorf("values that cannot be used: %s: see deploy/bundle.yaml for what these fields take", lost)
	}
	return &old.Spec.Bundle, nil
}

// checkShape refuses fields that belong under spec, and then another version or kind,
// so that the error names the mistake and not its consequences.
func checkShape(raw []byte) error {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(raw, &top); err != nil {
		return err
	}
	if misplaced := specFields(top); len(misplaced) > 0 {
		return fmt.Errorf("%s: a bundle is an object like any other: move these fields under spec, below apiVersion: %s, kind: %s and metadata: {name: %s}",
			strings.Join(misplaced, ", "), APIVersion, Kind, ObjectName)
	}
	var t metav1.TypeMeta
	if err := json.Unmarshal(raw, &t); err != nil {
		return err
	}
	if t.APIVersion == DeprecatedVersion {
		t.APIVersion = APIVersion
	}
	for _, f := range []struct{ name, has, want string }{{"apiVersion", t.APIVersion, APIVersion}, {"kind", t.Kind, Kind}} {
		switch f.has {
		case f.want:
		case "":
			return fmt.Errorf("%s is missing, write %s: %s", f.name, f.name, f.want)
		default:
			return fmt.Errorf("%s: %q is not supported, write %q", f.name, f.has, f.want)
		}
	}
	return nil
}

// specFields returns the keys that are fields of the spec, sorted.
func specFields(top map[string]json.RawMessage) []string {
	var found []string
	for _, name := range []string{"namespace", "scheduler", "konnectivity", "aggregation", "pki", "controlPlane"} {
		if _, ok := top[name]; ok {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

func checkMetadata(m *metav1.ObjectMeta) error {
	switch {
	case m.Name != "" && m.Name != ObjectName:
		return fmt.Errorf("metadata.name: %q is not supported, write %q: a cluster has one bundle", m.Name, ObjectName)
	case m.Namespace != "":
		return errors.New("metadata.namespace: a bundle belongs to no namespace: remove the field, and set spec.namespace to choose the namespace of its objects")
	}
	return nil
}
