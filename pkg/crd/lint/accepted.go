// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	apiserverwebhook "k8s.io/apiserver/pkg/util/webhook"

	"github.com/fairlead-dev/fairlead/pkg/crd"
)

const (
	// kubectl apply keeps the manifest in an annotation, and annotations are limited.
	maxApplied = 256 << 10
	// maxStored is etcd's default limit of a request.
	maxStored = 3 << 19
)

// accepted finds what the API server does not refuse. Valid says that it accepts the
// definition as a whole.
func accepted(d *crd.Definition, valid bool) []Finding {
	findings := slices.Concat(size(d), notStored(d), conversion(d), versions(d))
	for i := range d.Spec.Versions {
		v, path := &d.Spec.Versions[i], field.NewPath("spec", "versions").Index(i)
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			continue
		}
		schemaPath := path.Child("schema", "openAPIV3Schema")
		findings = append(findings, undeclared(d, v.Schema.OpenAPIV3Schema, schemaPath)...)
		findings = append(findings, unsatisfiable(d, v.Schema.OpenAPIV3Schema, schemaPath)...)
		findings = append(findings, columns(d, v, path)...)
		findings = append(findings, scale(d, v, path)...)
		findings = append(findings, status(d, v, path)...)
		if valid {
			findings = append(findings, costs(d, v.Schema.OpenAPIV3Schema, schemaPath)...)
		}
	}
	return findings
}

func size(d *crd.Definition) []Finding {
	text, err := json.Marshal(d.CustomResourceDefinition)
	switch {
	case err != nil:
		return nil
	case len(text) > maxStored:
		return []Finding{at(d, Finding{Level: Error, Rule: "size-storage", Message: fmt.Sprintf("the definition has %d bytes, more than the %d that etcd accepts", len(text), maxStored)})}
	case len(text) > maxApplied:
		return []Finding{at(d, Finding{Level: Warning, Rule: "size-apply", Message: fmt.Sprintf("the definition has %d bytes; client-side kubectl apply fails above %d", len(text), maxApplied)})}
	}
	return nil
}

// conversion finds versions that lose data, and webhooks that cannot be called.
func conversion(d *crd.Definition) (findings []Finding) {
	if !webhook(d.CustomResourceDefinition) {
		return lossy(d)
	}
	hook := d.Spec.Conversion.Webhook
	if hook == nil || hook.ClientConfig == nil {
		return nil // the API server says so
	}
	if ca := hook.ClientConfig.CABundle; len(strings.TrimSpace(string(ca))) == 0 {
		findings = append(findings, at(d, Finding{Level: Warning, Rule: "conversion-ca", Field: "spec.conversion.webhook.clientConfig.caBundle",
			Message: "without caBundle the API server trusts only the CAs of its machine"}))
	} else if strings.Contains(string(ca), "PRIVATE KEY-----") {
		findings = append(findings, at(d, Finding{Level: Error, Rule: "conversion-key", Field: "spec.conversion.webhook.clientConfig.caBundle",
			Message: "the bundle holds a private key: every user who can read definitions can read it"}))
	} else if errs := apiserverwebhook.ValidateCABundle(field.NewPath("spec", "conversion", "webhook", "clientConfig", "caBundle"), ca); len(errs) > 0 {
		findings = append(findings, at(d, Finding{Level: Error, Rule: "conversion-ca", Field: errs[0].Field,
			Message: "the bundle holds no certificate; the API server accepts it until the definition is established, and every conversion fails"}))
	}
	findings = append(findings, hookURL(d, hook.ClientConfig.URL)...)
	if reviews := hook.ConversionReviewVersions; len(reviews) > 0 && reviews[0] != "v1" && slices.Contains(reviews, "v1") {
		findings = append(findings, at(d, Finding{Level: Warning, Rule: "conversion-review", Field: "spec.conversion.webhook.conversionReviewVersions[0]",
			Message: fmt.Sprintf("the API server sends %s, the first version that it knows, and then checks less of the answer", reviews[0])}))
	}
	return findings
}

// lossy finds fields that not all versions have, or have with another type, although none is
// converted.
func lossy(d *crd.Definition) (findings []Finding) {
	for i := range d.Spec.Versions {
		for j := range d.Spec.Versions {
			from, to := &d.Spec.Versions[j], &d.Spec.Versions[i]
			if i == j || from.Schema == nil || to.Schema == nil || !(from.Served || from.Storage) || !(to.Served || to.Storage) {
				continue
			}
			path := field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema")
			var retyped []string
			for _, f := range narrow(from.Schema.OpenAPIV3Schema, to.Schema.OpenAPIV3Schema, path, "") {
				if f.rule == "type-changed" {
					retyped = append(retyped, f.object)
				}
			}
			lost := crd.Lost(from, to)
			if len(lost) > 0 {
				findings = append(findings, at(d, Finding{Level: Error, Rule: "conversion-none", Field: path.String(),
					Message: fmt.Sprintf("strategy None loses data of %s in %s: %s lacks %s", from.Name, to.Name, to.Name, shorten(lost))}))
			}
			if len(retyped) > 0 {
				findings = append(findings, at(d, Finding{Level: Error, Rule: "conversion-none", Field: path.String(),
					Message: fmt.Sprintf("strategy None leaves values as they are, so clients of %s get values of %s with another type: %s", to.Name, from.Name, shorten(retyped))}))
			}
		}
	}
	return findings
}

// shorten lists at most five names.
func shorten(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func versions(d *crd.Definition) (findings []Finding) {
	var served []string
	for _, v := range d.Spec.Versions {
		if v.Served {
			served = append(served, v.Name)
		}
	}
	if len(served) == 0 {
		return []Finding{at(d, Finding{Level: Error, Rule: "no-served-version", Field: "spec.versions", Message: "no version is served: the objects cannot be reached"})}
	}
	slices.SortFunc(served, func(a, b string) int { return apimachineryversion.CompareKubeAwareVersionStrings(b, a) })
	if storage := crd.StorageVersion(d.CustomResourceDefinition); webhook(d.CustomResourceDefinition) && storage != "" && served[0] != storage {
		findings = append(findings, at(d, Finding{Level: Warning, Rule: "preferred-version", Field: "spec.versions",
			Message: fmt.Sprintf("discovery prefers %s while %s is stored: kubectl, the garbage collector and the deletion of namespaces need the webhook", served[0], storage)}))
	}
	return append(findings, selectable(d)...)
}

// selectable finds selectable fields that only some served versions have.
func selectable(d *crd.Definition) (findings []Finding) {
	paths := func(v apiextensionsv1.CustomResourceDefinitionVersion) (all []string) {
		for _, f := range v.SelectableFields {
			all = append(all, f.JSONPath)
		}
		return all
	}
	for i, v := range d.Spec.Versions {
		for _, other := range d.Spec.Versions {
			for _, p := range paths(other) {
				if v.Served && other.Served && !slices.Contains(paths(v), p) {
					findings = append(findings, at(d, Finding{Level: Warning, Rule: "selectable-versions", Field: fmt.Sprintf("spec.versions[%d].selectableFields", i),
						Message: fmt.Sprintf("clients can select by %s in %s, but not in %s", p, other.Name, v.Name)}))
				}
			}
		}
	}
	return findings
}

func status(d *crd.Definition, v *apiextensionsv1.CustomResourceDefinitionVersion, path *field.Path) []Finding {
	if _, ok := v.Schema.OpenAPIV3Schema.Properties["status"]; !ok || (v.Subresources != nil && v.Subresources.Status != nil) {
		return nil
	}
	return []Finding{at(d, Finding{Level: Warning, Rule: "status-subresource", Field: path.Child("schema", "openAPIV3Schema", "properties").Key("status").String(),
		Message: "the schema has a status without a status subresource: each write of an object can change it, and raises metadata.generation"})}
}

// undeclared finds required fields that are always removed.
func undeclared(d *crd.Definition, root *apiextensionsv1.JSONSchemaProps, path *field.Path) (findings []Finding) {
	walk(root, path, true, func(s *apiextensionsv1.JSONSchemaProps, p *field.Path, isObject bool) {
		if s.AdditionalProperties != nil || isTrue(s.XPreserveUnknownFields) {
			return
		}
		for i, name := range s.Required {
			_, ok := s.Properties[name]
			if implicit := isObject && slices.Contains([]string{"apiVersion", "kind", "metadata"}, name); ok || implicit {
				continue
			}
			findings = append(findings, at(d, Finding{Level: Error, Rule: "required-undeclared", Field: p.Child("required").Index(i).String(),
				Message: fmt.Sprintf("%q is required but not declared: the API server refuses every object", name)}))
		}
	})
	return findings
}

// walk visits a schema and all nodes that describe a value of their own. The last argument
// of visit says that the node is a whole Kubernetes object.
func walk(s *apiextensionsv1.JSONSchemaProps, path *field.Path, root bool, visit func(*apiextensionsv1.JSONSchemaProps, *field.Path, bool)) {
	if s == nil {
		return
	}
	visit(s, path, root || s.XEmbeddedResource)
	for _, name := range names(s.Properties) {
		p := s.Properties[name]
		walk(&p, path.Child("properties").Key(name), false, visit)
	}
	if s.AdditionalProperties != nil {
		walk(s.AdditionalProperties.Schema, path.Child("additionalProperties"), false, visit)
	}
	if s.Items != nil {
		walk(s.Items.Schema, path.Child("items"), false, visit)
	}
}

func names(properties map[string]apiextensionsv1.JSONSchemaProps) []string {
	all := make([]string, 0, len(properties))
	for name := range properties {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func isTrue(b *bool) bool { return b != nil && *b }
