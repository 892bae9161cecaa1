// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/crdserverscheme"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/crd/lint"
)

// Validator answers for the objects of one definition.
type Validator struct {
	definition *apiextensionsv1.CustomResourceDefinition
	storage    string
	versions   map[string]*version
}

// version is what the API server builds for each version.
type version struct {
	name       string
	served     bool
	structural *structuralschema.Structural
	unpruned   bool // keeps what the schema does not declare
	main       strategy
	status     rest.RESTUpdateStrategy // nil without the subresource
}

// strategy is the API server's code for the requests of one version.
type strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

// New builds a validator. It refuses a definition that the API server refuses. One that comes from a cluster is judged as
// there: the API server tolerates what it has stored under older rules.
func New(ctx context.Context, d *crd.Definition) (*Validator, error) {
	own := &crd.Definition{CustomResourceDefinition: d.CustomResourceDefinition}
	findings, err := lint.Definition(ctx, own)
	if err == nil && len(d.Status.Conditions) > 0 { // only a cluster sets them
		findings, err = lint.Change(ctx, own, own)
	}
	if err != nil {
		return nil, err
	}
	if refused := lint.Refused(findings); len(refused) > 0 {
		return nil, fmt.Errorf("the API server refuses the definition %s: %s: %s: run \"fairlead crd lint\" for all %d errors",
			d.Name, refused[0].Field, refused[0].Message, len(refused))
	}
	v := &Validator{definition: d.CustomResourceDefinition, storage: crd.StorageVersion(d.CustomResourceDefinition), versions: map[string]*version{}}
	for i := range d.Spec.Versions {
		built, err := build(d.CustomResourceDefinition, &d.Spec.Versions[i])
		if err != nil {
			return nil, fmt.Errorf("%s: version %s: %w", d.Name, d.Spec.Versions[i].Name, err)
		}
		v.versions[built.name] = built
	}
	return v, nil
}

func build(d *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion) (*version, error) {
	internal := &apiextensions.CustomResourceDefinitionVersion{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinitionVersion_To_apiextensions_CustomResourceDefinitionVersion(v, internal, nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(internal.Schema.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	structural = structural.DeepCopy()
	if err := defaulting.PruneDefaults(structural); err != nil {
		return nil, err
	}
	whole, _, err := validation.NewSchemaValidator(internal.Schema.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	status, scale, statusSchema, err := subresources(internal)
	if err != nil {
		return nil, err
	}
	kind := schema.GroupVersionKind{Group: d.Spec.Group, Version: v.Name, Kind: d.Spec.Names.Kind}
	main := customresource.NewStrategy(crdserverscheme.NewUnstructuredObjectTyper(), d.Spec.Scope == apiextensionsv1.NamespaceScoped,
		kind, whole, statusSchema, structural, status, scale, v.SelectableFields)
	out := &version{name: v.Name, served: v.Served, structural: structural, unpruned: d.Spec.PreserveUnknownFields, main: main}
	if status != nil {
		out.status = customresource.NewStatusStrategy(main)
	}
	return out, nil
}

func subresources(v *apiextensions.CustomResourceDefinitionVersion) (*apiextensions.CustomResourceSubresourceStatus, *apiextensions.CustomResourceSubresourceScale, validation.SchemaValidator, error) {
	if v.Subresources == nil {
		return nil, nil, nil, nil
	}
	statusProps, ok := v.Schema.OpenAPIV3Schema.Properties["status"]
	if v.Subresources.Status == nil || !ok {
		return v.Subresources.Status, v.Subresources.Scale, nil, nil
	}
	statusSchema, _, err := validation.NewSchemaValidator(&statusProps)
	return v.Subresources.Status, v.Subresources.Scale, statusSchema, err
}
