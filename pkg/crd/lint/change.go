// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"context"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairlead-dev/fairlead/pkg/crd"
)

// Change says what is wrong with a definition that replaces an older one. If the older one
// has no status, it is taken as established, with objects in its storage version only.
func Change(ctx context.Context, d, old *crd.Definition) ([]Finding, error) {
	findings, err := update(ctx, d, old)
	if err != nil {
		return nil, err
	}
	findings = append(findings, accepted(d, Errors(findings) == 0)...)
	return sorted(slices.Concat(findings, scopeChange(d, old), versionChange(d, old), conversionChange(d, old), schemaChange(d, old))), nil
}

func scopeChange(d, old *crd.Definition) []Finding {
	if d.Spec.Scope == old.Spec.Scope {
		return nil
	}
	return []Finding{at(d, Finding{Level: Error, Rule: "scope-changed", Field: "spec.scope", Message: fmt.Sprintf("the scope changes from %s to %s", old.Spec.Scope, d.Spec.Scope)})}
}

// versionChange compares which versions are there, served and stored.
func versionChange(d, old *crd.Definition) (findings []Finding) {
	for _, o := range old.Spec.Versions {
		n := crd.Version(d.CustomResourceDefinition, o.Name)
		switch {
		case n == nil && o.Served:
			findings = append(findings, at(d, Finding{Level: Error, Rule: "version-removed", Field: "spec.versions", Message: fmt.Sprintf("version %s is removed while clients can still use it", o.Name),
				Remedy: "set served: false first and see whether a client fails, then remove the version"}))
		case n != nil && o.Served && !n.Served:
			findings = append(findings, at(d, Finding{Level: Warning, Rule: "version-unserved", Field: index(d, o.Name) + ".served", Message: fmt.Sprintf("clients of version %s get 404", o.Name)}))
		}
	}
	storage, before := crd.StorageVersion(d.CustomResourceDefinition), crd.StorageVersion(old.CustomResourceDefinition)
	if storage != before && storage != "" {
		findings = append(findings, at(d, Finding{Level: Warning, Rule: "storage-changed", Field: index(d, storage) + ".storage",
			Message: fmt.Sprintf("the storage version changes from %s to %s: objects stay in %s until they are written again", before, storage, before)}))
		if v := crd.Version(old.CustomResourceDefinition, storage); v == nil || !v.Served {
			findings = append(findings, at(d, Finding{Level: Warning, Rule: "storage-changed", Field: index(d, storage) + ".storage",
				Message: fmt.Sprintf("version %s becomes the storage version in the same step in which it is first served: after a roll-back, new objects are unreadable", storage),
				Remedy:  "serve the version first, and make it the storage version in a later release"}))
		}
	}
	return findings
}

// index is the path of a version.
func index(d *crd.Definition, name string) string {
	i := slices.IndexFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == name })
	return fmt.Sprintf("spec.versions[%d]", i)
}

func conversionChange(d, old *crd.Definition) []Finding {
	before, now := webhook(old.CustomResourceDefinition), webhook(d.CustomResourceDefinition)
	switch {
	case before && !now && len(d.Spec.Versions) > 1:
		return []Finding{at(d, Finding{Level: Error, Rule: "conversion-dropped", Field: "spec.conversion", Message: "the strategy changes from Webhook to None: the API server only changes apiVersion, and removes fields that the other version does not declare"})}
	case !before && now:
		return []Finding{at(d, Finding{Level: Warning, Rule: "conversion-added", Field: "spec.conversion", Message: "from now on, reads and writes of other versions than the stored one fail while the webhook does not answer"})}
	}
	return nil
}

// schemaChange compares the schema of each version with that of the same version before. A
// new version is compared with the old storage version if nothing converts its objects.
func schemaChange(d, old *crd.Definition) (findings []Finding) {
	for i := range d.Spec.Versions {
		n := &d.Spec.Versions[i]
		path := field.NewPath("spec", "versions").Index(i)
		o := crd.Version(old.CustomResourceDefinition, n.Name)
		if o == nil {
			continue // accepted compares it with the other versions
		}
		if o.Schema != nil && n.Schema != nil {
			for _, x := range narrow(o.Schema.OpenAPIV3Schema, n.Schema.OpenAPIV3Schema, path.Child("schema", "openAPIV3Schema"), "") {
				findings = append(findings, at(d, Finding{Level: x.level, Rule: x.rule, Field: x.field, Message: n.Name + " " + x.message}))
			}
		}
		findings = append(findings, surface(d, o, n, path)...)
	}
	return findings
}

// surface compares what clients see of a version apart from its schema.
func surface(d *crd.Definition, o, n *apiextensionsv1.CustomResourceDefinitionVersion, path *field.Path) (findings []Finding) {
	for _, f := range o.SelectableFields {
		if !slices.Contains(n.SelectableFields, f) {
			findings = append(findings, at(d, Finding{Level: Error, Rule: "selectable-removed", Field: path.Child("selectableFields").String(), Message: fmt.Sprintf("%s: clients can no longer select by %s", n.Name, f.JSONPath)}))
		}
	}
	for _, c := range o.AdditionalPrinterColumns {
		if !slices.ContainsFunc(n.AdditionalPrinterColumns, func(x apiextensionsv1.CustomResourceColumnDefinition) bool { return x.Name == c.Name }) {
			findings = append(findings, at(d, Finding{Level: Warning, Rule: "column-removed", Field: path.Child("additionalPrinterColumns").String(), Message: fmt.Sprintf("%s: the column %s is gone", n.Name, c.Name)}))
		}
	}
	has := func(s *apiextensionsv1.CustomResourceSubresources) (status, scale bool) {
		return s != nil && s.Status != nil, s != nil && s.Scale != nil
	}
	status, scale := has(o.Subresources)
	statusNow, scaleNow := has(n.Subresources)
	if status && !statusNow || scale && !scaleNow {
		findings = append(findings, at(d, Finding{Level: Error, Rule: "subresource-changed", Field: path.Child("subresources").String(), Message: n.Name + ": a subresource is removed, and requests to it get 404"}))
	}
	if !status && statusNow {
		findings = append(findings, at(d, Finding{Level: Warning, Rule: "subresource-changed", Field: path.Child("subresources", "status").String(), Message: n.Name + ": writes of objects no longer change the status"}))
	}
	return findings
}
