// SPDX-License-Identifier: Apache-2.0

// Package crds holds the CustomResourceDefinitions of group fairlead.dev. `make generate`
// writes them from the types in the packages v1alpha1 and v1beta1; [All] returns them, and
// [WithWebhook] those that need a conversion webhook with one.
package crds

import (
	"embed"
	"fmt"
	"io/fs"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed *.yaml
var files embed.FS

// All returns the definitions, sorted by name. Those of several versions convert by the webhook of the operator's
// default Service, without its CA; see WithWebhook.
func All() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, err
	}
	all := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(names))
	for _, name := range names {
		data, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, crd); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, crd)
	}
	return all, nil
}

// WithWebhook returns the definitions. Those of several versions convert by the webhook.
func WithWebhook(client apiextensionsv1.WebhookClientConfig) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	for _, crd := range all {
		if len(crd.Spec.Versions) > 1 {
			crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
				Strategy: apiextensionsv1.WebhookConverter,
				Webhook:  &apiextensionsv1.WebhookConversion{ClientConfig: client.DeepCopy(), ConversionReviewVersions: []string{"v1"}},
			}
		}
	}
	return all, nil
}
