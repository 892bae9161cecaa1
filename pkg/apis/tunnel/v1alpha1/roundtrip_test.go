// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	genericfuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// TestRoundTrip: random objects survive JSON and protobuf. A field that has been added without "make generate-protobuf"
// fails here.
// It observes API-27 of docs/requirements.md.
func TestRoundTrip(t *testing.T) {
	scheme := runtime.NewScheme()
	utilruntime.Must(AddToScheme(scheme))
	codecs := serializer.NewCodecFactory(scheme)
	seed := fuzzer.FuzzerFor(genericfuzzer.Funcs, nil, codecs)
	for gvk := range scheme.AllKnownTypes() {
		if gvk.Group == GroupName && len(gvk.Kind) > 6 && gvk.Kind[:6] == "Tunnel" {
			t.Run(gvk.Kind, func(t *testing.T) { roundtrip.RoundTripSpecificKind(t, gvk, scheme, codecs, seed, nil) })
		}
	}
}
