// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"fmt"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"

	"github.com/fairlead-dev/fairlead/pkg/crd/manifest"
)

// Scheme knows the versions of CustomResourceDefinition.
var Scheme = newScheme()

var decoder = json.NewSerializerWithOptions(json.DefaultMetaFactory, Scheme, Scheme, json.SerializerOptions{Yaml: true, Strict: true})

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	install.Install(s)
	return s
}

// GroupKind is that of definitions.
var GroupKind = schema.GroupKind{Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition"}

// Definition is a CustomResourceDefinition in the two forms that the API server's code
// takes, with the API's defaults.
type Definition struct {
	*apiextensionsv1.CustomResourceDefinition
	// Document is where it comes from, nil if it comes from a cluster.
	Document *manifest.Document
	// Unknown lists the fields that the API does not know, and those that are given twice.
	Unknown []error
}

// Decode reads a definition from a document.
func Decode(d *manifest.Document) (*Definition, error) {
	if d.Err != nil {
		return nil, fmt.Errorf("%s: %w", d.Source(), d.Err)
	}
	if d.GroupKind() != GroupKind {
		return nil, fmt.Errorf("%s: %s is not a CustomResourceDefinition", d.Source(), d.Object.GroupVersionKind())
	}
	if v := d.Object.GroupVersionKind().Version; v != apiextensionsv1.SchemeGroupVersion.Version {
		return nil, fmt.Errorf("%s: API servers do not serve apiextensions.k8s.io/%s: rewrite the definition as apiextensions.k8s.io/v1", d.Source(), v)
	}
	obj, _, err := decoder.Decode(d.Raw, nil, nil)
	out := &Definition{Document: d}
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		out.Unknown = strict.Errors()
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Source(), err)
	}
	out.CustomResourceDefinition = obj.(*apiextensionsv1.CustomResourceDefinition)
	Scheme.Default(out.CustomResourceDefinition)
	return out, nil
}

// Internal converts a definition to the form that the API server validates.
func Internal(in *apiextensionsv1.CustomResourceDefinition) (*apiextensions.CustomResourceDefinition, error) {
	out := &apiextensions.CustomResourceDefinition{}
	if err := Scheme.Convert(in, out, nil); err != nil {
		return nil, fmt.Errorf("%s: %w", in.Name, err)
	}
	return out, nil
}

// hoisted are the fields that the API server moves to the top of spec when all versions
// agree on them, and conversion settings, whose internal names differ from those in v1.
var hoisted = []struct{ internal, v1 string }{
	{"spec.validation.openAPIV3Schema", "spec.versions[0].schema.openAPIV3Schema"},
	{"spec.validation", "spec.versions[0].schema"},
	{"spec.subresources", "spec.versions[0].subresources"},
	{"spec.additionalPrinterColumns", "spec.versions[0].additionalPrinterColumns"},
	{"spec.selectableFields", "spec.versions[0].selectableFields"},
	{"spec.conversion.webhookClientConfig", "spec.conversion.webhook.clientConfig"},
	{"spec.conversion.conversionReviewVersions", "spec.conversion.webhook.conversionReviewVersions"},
}

// PathInV1 turns the path of an error of the API server's validation into that of the field
// in a v1 manifest.
func PathInV1(path string) string {
	path = strings.ReplaceAll(path, ".JSONPath", ".jsonPath")
	for _, h := range hoisted {
		if rest, ok := strings.CutPrefix(path, h.internal); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return h.v1 + rest
		}
	}
	return path
}

// StorageVersion returns the name of the storage version, "" if there is none.
func StorageVersion(d *apiextensionsv1.CustomResourceDefinition) string {
	for _, v := range d.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}

// Version returns the version of that name, or nil.
func Version(d *apiextensionsv1.CustomResourceDefinition, name string) *apiextensionsv1.CustomResourceDefinitionVersion {
	for i := range d.Spec.Versions {
		if d.Spec.Versions[i].Name == name {
			return &d.Spec.Versions[i]
		}
	}
	return nil
}
