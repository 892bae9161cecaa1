// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/fairlead-dev/fairlead/pkg/crd"
)

// Definition says what is wrong with a definition that is to be created.
func Definition(ctx context.Context, d *crd.Definition) ([]Finding, error) {
	findings, err := create(ctx, d)
	if err != nil {
		return nil, err
	}
	return sorted(append(findings, accepted(d, Errors(findings) == 0)...)), nil
}

// Set says what is wrong with definitions, also with each other. Definitions with an older
// generation in old, found by name, are judged as a change of it.
func Set(ctx context.Context, definitions []*crd.Definition, old map[string]*crd.Definition) ([]Finding, error) {
	var all []Finding
	for _, d := range definitions {
		findings, err := judge(ctx, d, old)
		if err != nil {
			return nil, err
		}
		all = append(all, findings...)
	}
	return sorted(append(all, conflicts(definitions)...)), nil
}

func judge(ctx context.Context, d *crd.Definition, old map[string]*crd.Definition) ([]Finding, error) {
	if old == nil {
		return Definition(ctx, d)
	}
	if o := old[d.Name]; o != nil {
		return Change(ctx, d, o)
	}
	findings, err := Definition(ctx, d)
	if err != nil {
		return nil, err
	}
	return append(findings, renamed(d, old)...), nil
}

// renamed notices a definition whose kind stays while its name changes.
func renamed(d *crd.Definition, old map[string]*crd.Definition) []Finding {
	for name, o := range old {
		if o.Spec.Names.Kind == d.Spec.Names.Kind {
			return []Finding{at(d, Finding{Level: Error, Rule: "name-changed", Field: "metadata.name",
				Message: fmt.Sprintf("kind %s was served by %s: its objects stay there", d.Spec.Names.Kind, name)})}
		}
	}
	return []Finding{at(d, Finding{Level: Warning, Rule: "name-changed", Field: "metadata.name",
		Message: "the old definitions have none of this name: the definition is judged as a new one", Remedy: "name the file of its older generation with --old"})}
}

// conflicts finds definitions that cannot be served together.
func conflicts(definitions []*crd.Definition) (findings []Finding) {
	taken := map[string]*crd.Definition{}
	claim := func(d *crd.Definition, space, name, field string) {
		if name == "" {
			return
		}
		key := d.Spec.Group + " " + space + " " + name
		other := taken[key]
		if other == nil {
			taken[key] = d
			return
		}
		if other != d && (other.Name != d.Name || space == "definition") {
			where := other.Name
			if other.Document != nil {
				where += " in " + other.Document.Source()
			}
			findings = append(findings, at(d, Finding{Level: Error, Rule: "names-conflict", Field: field, Message: fmt.Sprintf("%q is taken by %s", name, where)}))
		}
	}
	for _, d := range definitions {
		claim(d, "definition", d.Name, "metadata.name")
		names := d.Spec.Names
		claim(d, "resource", names.Plural, "spec.names.plural")
		claim(d, "resource", names.Singular, "spec.names.singular")
		for i, short := range names.ShortNames {
			claim(d, "resource", short, fmt.Sprintf("spec.names.shortNames[%d]", i))
		}
		claim(d, "kind", names.Kind, "spec.names.kind")
		claim(d, "kind", names.ListKind, "spec.names.listKind")
	}
	return findings
}

// webhook reports whether versions are converted by a webhook.
func webhook(d *apiextensionsv1.CustomResourceDefinition) bool {
	return d.Spec.Conversion != nil && d.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter
}
