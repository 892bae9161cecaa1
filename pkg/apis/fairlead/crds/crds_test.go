// SPDX-License-Identifier: Apache-2.0

package crds_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/crds"
)

// maxBytes keeps a definition as the API server stores it, in JSON, far below the 256 KiB
// that kubectl's annotation, which repeats it, may have.
const maxBytes = 100_000

// TestFiles: every definition is small enough for kubectl apply, is of our group, has
// status, names and categories, and stores v1beta1.
func TestFiles(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v", files, err)
	}
	all, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range all {
		if data, err := json.Marshal(crd); err != nil || len(data) > maxBytes {
			t.Errorf("%s has %d bytes, more than %d: %v", crd.Name, len(data), maxBytes, err)
		}
		if crd.Spec.Group != "fairlead.dev" || len(crd.Spec.Names.ShortNames) == 0 || len(crd.Spec.Names.Categories) == 0 {
			t.Errorf("%s: %+v", crd.Name, crd.Spec.Names)
		}
		for _, v := range crd.Spec.Versions {
			if v.Storage != (v.Name == "v1beta1") || v.Deprecated != (v.Name == "v1alpha1") || !v.Served {
				t.Errorf("%s/%s: storage %v, deprecated %v, served %v", crd.Name, v.Name, v.Storage, v.Deprecated, v.Served)
			}
			if v.Subresources == nil || v.Subresources.Status == nil || len(v.AdditionalPrinterColumns) == 0 {
				t.Errorf("%s/%s lacks status or columns", crd.Name, v.Name)
			}
			// The API server refuses equal selectable fields in versions of different schemas.
			if len(v.SelectableFields) > 0 != v.Storage {
				t.Errorf("%s/%s: selectable fields %v", crd.Name, v.Name, v.SelectableFields)
			}
			if scale := v.Subresources.Scale; (scale != nil) != (crd.Spec.Names.Kind == "TunnelPool") {
				t.Errorf("%s/%s: scale %v", crd.Name, v.Name, scale)
			}
		}
	}
}

// TestValid: the API server's own validation accepts the definitions: structural schemas,
// rules that compile and whose cost is within the limits, columns and selectable fields.
func TestValid(t *testing.T) {
	url := "https://127.0.0.1:9443/convert"
	all, err := crds.WithWebhook(apiextensionsv1.WebhookClientConfig{URL: &url})
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range all {
		if webhook := crd.Spec.Conversion != nil; webhook != (len(crd.Spec.Versions) > 1) {
			t.Errorf("%s has %d versions and a webhook: %v", crd.Name, len(crd.Spec.Versions), webhook)
		}
		apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		internal := &apiextensions.CustomResourceDefinition{}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil); err != nil {
			t.Fatal(err)
		}
		internal.Status.StoredVersions = []string{"v1beta1"} // the registry sets it before it validates
		for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), internal) {
			t.Errorf("%s: %v", crd.Name, err)
		}
	}
}
