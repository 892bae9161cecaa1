// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/jsonpath"

	"github.com/fairlead-dev/fairlead/pkg/crd"
)

// columns finds printer columns whose cells stay empty.
func columns(d *crd.Definition, v *apiextensionsv1.CustomResourceDefinitionVersion, path *field.Path) (findings []Finding) {
	for i, c := range v.AdditionalPrinterColumns {
		p := path.Child("additionalPrinterColumns").Index(i)
		if strings.EqualFold(c.Name, "name") && c.JSONPath == ".metadata.name" {
			findings = append(findings, at(d, Finding{Level: Warning, Rule: "column-name", Field: p.String(), Message: "the table shows the name twice"}))
		}
		node, err := resolve(v.Schema.OpenAPIV3Schema, c.JSONPath)
		switch {
		case err != nil:
			findings = append(findings, at(d, Finding{Level: Warning, Rule: "column-path", Field: p.Child("jsonPath").String(), Message: fmt.Sprintf("column %s: %v", c.Name, err)}))
		case node != nil && !prints(c.Type, node):
			findings = append(findings, at(d, Finding{Level: Warning, Rule: "column-type", Field: p.Child("type").String(),
				Message: fmt.Sprintf("column %s has type %s, but %s is of type %s", c.Name, c.Type, c.JSONPath, node.Type)}))
		}
	}
	return findings
}

// prints reports whether a column of a type shows values of a field.
func prints(column string, node *apiextensionsv1.JSONSchemaProps) bool {
	if node.Type == "" || node.XIntOrString {
		return true
	}
	switch column {
	case "integer":
		return node.Type == "integer"
	case "number":
		return node.Type == "integer" || node.Type == "number"
	case "boolean":
		return node.Type == "boolean"
	case "date":
		return node.Type == "string"
	}
	return true // a string shows anything
}

// scale finds paths of the scale subresource that lead nowhere.
func scale(d *crd.Definition, v *apiextensionsv1.CustomResourceDefinitionVersion, path *field.Path) (findings []Finding) {
	if v.Subresources == nil || v.Subresources.Scale == nil {
		return nil
	}
	s, p := v.Subresources.Scale, path.Child("subresources", "scale")
	check := func(name, jsonPath, want string) {
		node, err := resolve(v.Schema.OpenAPIV3Schema, jsonPath)
		if err == nil && node != nil && node.Type != want {
			err = fmt.Errorf("%s has type %s, not %s", jsonPath, node.Type, want)
		}
		if err != nil {
			findings = append(findings, at(d, Finding{Level: Error, Rule: "scale-path", Field: p.Child(name).String(), Message: err.Error()}))
		}
	}
	check("specReplicasPath", s.SpecReplicasPath, "integer")
	check("statusReplicasPath", s.StatusReplicasPath, "integer")
	if s.LabelSelectorPath != nil {
		check("labelSelectorPath", *s.LabelSelectorPath, "string")
	}
	return findings
}

// resolve follows a JSON path through a schema. It returns nil without an error where the
// schema does not say what is there: in metadata, in preserved data, behind "..".
func resolve(s *apiextensionsv1.JSONSchemaProps, jsonPath string) (*apiextensionsv1.JSONSchemaProps, error) {
	parsed, err := jsonpath.Parse("path", "{"+jsonPath+"}")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", jsonPath, err)
	}
	if len(parsed.Root.Nodes) != 1 {
		return nil, fmt.Errorf("%q is not one JSON path", jsonPath)
	}
	list, ok := parsed.Root.Nodes[0].(*jsonpath.ListNode)
	if !ok {
		return nil, fmt.Errorf("%q is not a JSON path", jsonPath)
	}
	node, root := s, true
	for _, step := range list.Nodes {
		if f, ok := step.(*jsonpath.FieldNode); ok && root {
			if f.Value == "metadata" || f.Value == "apiVersion" || f.Value == "kind" {
				return nil, nil
			}
		}
		root = false
		next, known, err := child(node, step)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", jsonPath, err)
		}
		if !known {
			return nil, nil
		}
		node = next
	}
	return node, nil
}

// child goes one step down.
func child(s *apiextensionsv1.JSONSchemaProps, step jsonpath.Node) (next *apiextensionsv1.JSONSchemaProps, known bool, err error) {
	switch n := step.(type) {
	case *jsonpath.FieldNode:
		if p, ok := s.Properties[n.Value]; ok {
			return &p, true, nil
		}
		if s.AdditionalProperties != nil {
			return s.AdditionalProperties.Schema, s.AdditionalProperties.Schema != nil, nil
		}
		if isTrue(s.XPreserveUnknownFields) || s.XEmbeddedResource {
			return nil, false, nil
		}
		return nil, false, fmt.Errorf("the schema does not declare %q", n.Value)
	case *jsonpath.ArrayNode, *jsonpath.FilterNode:
		if s.Items != nil && s.Items.Schema != nil {
			return s.Items.Schema, true, nil
		}
		if s.Type != "" && s.Type != "array" {
			return nil, false, fmt.Errorf("%s is of type %s, not an array", step, s.Type)
		}
	case *jsonpath.WildcardNode:
		if s.Items != nil && s.Items.Schema != nil {
			return s.Items.Schema, true, nil
		}
	}
	return nil, false, nil
}
