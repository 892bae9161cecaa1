// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"net/url"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// TestConnectOptions: wrong parameters reach who serves the request, and so its log, as ones that are left out. Of two hosts,
// none is taken.
func TestConnectOptions(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]TunnelAgentConnectOptions{
		"host=a&port=80":            {Host: "a", Port: 80},
		"host=a&host=b&port=80":     {Port: 80},
		"host=a&port=80&port=80":    {Host: "a"},
		"host=a&port=http":          {Host: "a"},
		"host=a&port=%2B80":         {Host: "a"},
		"host=a&port=65536":         {Host: "a"},
		"host=a&port=-1":            {Host: "a"},
		"":                          {},
		"host=a&port=80&color=blue": {Host: "a", Port: 80},
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		var got TunnelAgentConnectOptions
		if err := runtime.NewParameterCodec(scheme).DecodeParameters(values, SchemeGroupVersion, &got); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", query, got, err, want)
		}
	}
}
