// SPDX-License-Identifier: Apache-2.0

package conversion_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion"
)

// TestFieldEdges shows values at the edges of the rules: durations that are no whole seconds, false, and halves of addresses.
func TestFieldEdges(t *testing.T) {
	for _, c := range []struct{ to, spec, want string }{
		{conversion.V1beta1, `{"pki": {"validity": "1500ms", "caValidity": "-1500ms"}}`, `{"pki": {"validitySeconds": 2, "caValiditySeconds": -2}}`},
		{conversion.V1beta1, `{"pki": {"validity": "2s"}}`, `{"pki": {"validitySeconds": 2}}`},
		{conversion.V1beta1, `{"konnectivity": {"agent": {"hostNetwork": false}}}`, `{"konnectivity": {"agent": {"hostNetwork": "Disabled"}}}`},
		{conversion.V1alpha1, `{"konnectivity": {"agent": {"hostNetwork": "Disabled"}}}`, `{"konnectivity": {"agent": {"hostNetwork": false}}}`},
		{conversion.V1beta1, `{"konnectivity": {"serverHost": "192.0.2.7"}}`, `{"konnectivity": {"serverAddresses": [{"host": "192.0.2.7"}]}}`},
		{conversion.V1beta1, `{"konnectivity": {"serverHost": "", "agentPort": 9132}}`, `{"konnectivity": {"serverAddresses": [{"port": 9132}]}}`},
		{conversion.V1beta1, `{"konnectivity": {"serverHost": "a", "agentPort": 1099511627776}}`, `{"konnectivity": {"serverAddresses": [{"host": "a"}]}}`},
		{conversion.V1alpha1, `{"konnectivity": {"serverAddresses": [{"host": "", "port": 1}]}}`, `{"konnectivity": {"agentPort": 1}}`},
	} {
		from := map[string]string{conversion.V1beta1: conversion.V1alpha1, conversion.V1alpha1: conversion.V1beta1}[c.to]
		object := decode(t, `{"apiVersion": "`+from+`", "kind": "Bundle", "metadata": {"name": "default"}, "spec": `+c.spec+`}`)
		got := convert(t, object, c.to)["spec"]
		if diff := cmp.Diff(any(decode(t, c.want)), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.spec, diff)
		}
	}
}

// TestSameVersion: a conversion to the version that an object has leaves it as it is, with its annotations.
func TestSameVersion(t *testing.T) {
	first := convert(t, decode(t, `{"apiVersion": "fairlead.dev/v1alpha1", "kind": "Bundle", "metadata": {"name": "default"},
		"spec": {"pki": {"validity": "1500ms"}}}`), conversion.V1beta1)
	if len(first["metadata"].(map[string]any)["annotations"].(map[string]any)) == 0 {
		t.Fatal("no annotation has what v1beta1 cannot express")
	}
	if diff := cmp.Diff(first, convert(t, first, conversion.V1beta1)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
