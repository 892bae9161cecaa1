// SPDX-License-Identifier: Apache-2.0

package conversion_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/randfill"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
)

// rounds is how many random objects each kind and direction gets.
const rounds = 10_000

func decode(t testing.TB, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := utiljson.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return m
}

func convert(t testing.TB, object map[string]any, to string) map[string]any {
	t.Helper()
	out := runtime.DeepCopyJSON(object)
	if err := conversion.Convert(out, to); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestConvert shows each field that differs, in both directions.
func TestConvert(t *testing.T) {
	old := decode(t, `{"apiVersion": "fairlead.dev/v1alpha1", "kind": "Bundle", "metadata": {"name": "default"}, "spec": {
		"scheduler": {"replicas": 3, "leaderElection": {"leaseDuration": "12s", "renewDeadline": "1m0s", "retryPeriod": "2s"}},
		"pki": {"validity": "1h0m0s", "caValidity": "2h0m0s"},
		"konnectivity": {"serverHost": "192.0.2.7", "agentPort": 9132, "server": {"drainTimeout": "5s"},
			"agent": {"hostNetwork": true, "identifiers": "host=$(NODE_NAME)&ipv4=$(HOST_IP)&default-route=true"}}}}`)
	hub := decode(t, `{"apiVersion": "fairlead.dev/v1beta1", "kind": "Bundle", "metadata": {"name": "default"}, "spec": {
		"scheduler": {"replicas": 3, "leaderElection": {"leaseDurationSeconds": 12, "renewDeadlineSeconds": 60, "retryPeriodSeconds": 2}},
		"pki": {"validitySeconds": 3600, "caValiditySeconds": 7200},
		"konnectivity": {"serverAddresses": [{"host": "192.0.2.7", "port": 9132}], "server": {"drainTimeoutSeconds": 5},
			"agent": {"hostNetwork": "Enabled", "identifiers": [{"type": "Host", "value": "$(NODE_NAME)"},
				{"type": "IPv4", "value": "$(HOST_IP)"}, {"type": "DefaultRoute", "value": "true"}]}}}}`)
	if diff := cmp.Diff(hub, convert(t, old, conversion.V1beta1)); diff != "" {
		t.Errorf("up (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(old, convert(t, hub, conversion.V1alpha1)); diff != "" {
		t.Errorf("down (-want +got):\n%s", diff)
	}
}

// TestLostFields: what the other version cannot express survives a round trip, also if
// another field was edited in between; an edit of the field itself wins.
// It observes VER-66 and VER-67 of docs/requirements.md.
func TestLostFields(t *testing.T) {
	for name, tc := range map[string]struct{ version, other, spec string }{
		"fraction of a second": {conversion.V1alpha1, conversion.V1beta1, `{"pki": {"validity": "1500ms"}}`},
		"unusual spelling":     {conversion.V1alpha1, conversion.V1beta1, `{"pki": {"validity": "3600s"}}`},
		"no duration":          {conversion.V1alpha1, conversion.V1beta1, `{"pki": {"validity": "soon"}}`},
		"unknown identifier":   {conversion.V1alpha1, conversion.V1beta1, `{"konnectivity": {"agent": {"identifiers": "host=a&region=b"}}}`},
		"broken identifier":    {conversion.V1alpha1, conversion.V1beta1, `{"konnectivity": {"agent": {"identifiers": "host=%zz"}}}`},
		"no identifiers":       {conversion.V1alpha1, conversion.V1beta1, `{"konnectivity": {"agent": {"identifiers": ""}}}`},
		"empty lists":          {conversion.V1beta1, conversion.V1alpha1, `{"konnectivity": {"serverAddresses": [], "agent": {"identifiers": []}}}`},
		"empty host":           {conversion.V1alpha1, conversion.V1beta1, `{"konnectivity": {"serverHost": "", "agentPort": 0}}`},
		"two addresses":        {conversion.V1beta1, conversion.V1alpha1, `{"konnectivity": {"serverAddresses": [{"host": "a"}, {"host": "b", "port": 1}]}}`},
		"empty address":        {conversion.V1beta1, conversion.V1alpha1, `{"konnectivity": {"serverAddresses": [{}]}}`},
		"unknown enum":         {conversion.V1beta1, conversion.V1alpha1, `{"konnectivity": {"agent": {"hostNetwork": "Maybe"}}}`},
		"too many addresses":   {conversion.V1beta1, conversion.V1alpha1, `{"konnectivity": {"serverAddresses": [{"port": 2147483647}, {}, {"host": ""}]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			in := decode(t, fmt.Sprintf(`{"apiVersion": %q, "kind": "Bundle", "metadata": {"name": "default"}, "spec": %s}`, tc.version, tc.spec))
			there := convert(t, in, tc.other)
			if diff := cmp.Diff(in, convert(t, there, tc.version)); diff != "" {
				t.Errorf("round trip (-before +after):\n%s", diff)
			}
			there["spec"].(map[string]any)["namespace"] = "edited"
			back := convert(t, there, tc.version)
			in["spec"].(map[string]any)["namespace"] = "edited"
			if diff := cmp.Diff(in, back); diff != "" {
				t.Errorf("after an edit of another field (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEditsWin: a field that was edited in the other version is not overwritten by the
// original in the annotation, and the annotation goes.
func TestEditsWin(t *testing.T) {
	in := decode(t, `{"apiVersion": "fairlead.dev/v1alpha1", "kind": "Bundle", "metadata": {"name": "default"}, "spec": {"pki": {"validity": "1500ms"}}}`)
	hub := convert(t, in, conversion.V1beta1)
	hub["spec"].(map[string]any)["pki"].(map[string]any)["validitySeconds"] = int64(9)
	want := decode(t, `{"apiVersion": "fairlead.dev/v1alpha1", "kind": "Bundle", "metadata": {"name": "default"}, "spec": {"pki": {"validity": "9s"}}}`)
	if diff := cmp.Diff(want, convert(t, hub, conversion.V1alpha1)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestAnnotationLimit: an object whose annotations leave no room for what its other version cannot express converts
// nevertheless, without an annotation: the API server would refuse the result, and no client could read the object.
func TestAnnotationLimit(t *testing.T) {
	const lost = `{"spec.serverAddresses":{"serverAddresses":[{}]}}`
	room := validation.TotalAnnotationSizeLimitB - len("example.com/a") - len(conversion.LostV1beta1) - len(lost)
	for size, fits := range map[int]bool{10: true, room: true, room + 1: false, 262_100: false} {
		in := decode(t, fmt.Sprintf(`{"apiVersion": "fairlead.dev/v1beta1", "kind": "TunnelPool", "metadata": {"name": "p", "namespace": "n",
			"annotations": {"example.com/a": %q}}, "spec": {"serverAddresses": [{}]}}`, strings.Repeat("x", size)))
		out := convert(t, in, conversion.V1alpha1)
		annotations := (&unstructured.Unstructured{Object: out}).GetAnnotations()
		if errs := validation.ValidateAnnotations(annotations, field.NewPath("metadata", "annotations")); len(errs) > 0 {
			t.Errorf("with an annotation of %d bytes: %v", size, errs.ToAggregate())
		}
		if text, found := annotations[conversion.LostV1beta1]; found != fits || fits && text != lost {
			t.Errorf("with an annotation of %d bytes the fields are kept: %v, want %v: %s", size, found, fits, text)
		}
	}
}

// TestConvertRefuses: only a kind or a version that does not exist is an error, and the
// object stays as it was.
func TestConvertRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{"apiVersion": "fairlead.dev/v1beta1", "kind": "SchedulerProfile"}`: `kind "SchedulerProfile" is not converted`,
		`{"apiVersion": "fairlead.dev/v9", "kind": "Bundle"}`:                `apiVersion "fairlead.dev/v9" of kind Bundle is unknown`,
		`{"kind": "Bundle"}`: `apiVersion "" of kind Bundle is unknown`,
	} {
		object := decode(t, text)
		if err := conversion.Convert(object, conversion.V1alpha1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if diff := cmp.Diff(decode(t, text), object); diff != "" {
			t.Errorf("%s was changed:\n%s", text, diff)
		}
	}
}

// TestRoundTrips: random objects of each kind come back equal, from both versions. The
// fields are any strings and numbers, so most of them would not validate.
// It observes VER-66 and VER-67 of docs/requirements.md.
func TestRoundTrips(t *testing.T) {
	for name, tc := range map[string]struct {
		version, other, kind string
		make                 func() any
	}{
		"Bundle v1alpha1":     {conversion.V1alpha1, conversion.V1beta1, "Bundle", func() any { return &v1alpha1.Bundle{} }},
		"Bundle v1beta1":      {conversion.V1beta1, conversion.V1alpha1, "Bundle", func() any { return &v1beta1.Bundle{} }},
		"TunnelPool v1alpha1": {conversion.V1alpha1, conversion.V1beta1, "TunnelPool", func() any { return &v1alpha1.TunnelPool{} }},
		"TunnelPool v1beta1":  {conversion.V1beta1, conversion.V1alpha1, "TunnelPool", func() any { return &v1beta1.TunnelPool{} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := rounds
			if testing.Short() {
				n = rounds / 20
			}
			fill := filler(1)
			for i := range n {
				object := tc.make()
				fill.Fill(object)
				text, err := json.Marshal(object)
				if err != nil {
					t.Fatal(err)
				}
				in := decode(t, string(text))
				in["apiVersion"], in["kind"] = tc.version, tc.kind
				there := convert(t, in, tc.other)
				back := convert(t, there, tc.version)
				if !reflect.DeepEqual(in, back) { // cmp.Diff takes most of the time otherwise
					t.Fatalf("object %d (-before +after):\n%s\n%s", i, cmp.Diff(in, back), text)
				}
			}
		})
	}
}

// interesting are values at which the versions differ.
var interesting = []string{
	"", "true", "Enabled", "Disabled", "Host", "IPv4", "DefaultRoute", "a b", "a&b=c", "%41", "%zz", "host=a", "ipv4=$(HOST_IP)&host=a",
	"host", "host=a&host=a", "default-route=true&", "&", "cidr=10.0.0.0/8;x", "+", "é",
}

func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0.5).NumElements(0, 2).MaxDepth(14).Funcs(
		func(s *string, c randfill.Continue) { *s = pickString(c) },
		func(r *runtime.RawExtension, c randfill.Continue) { r.Raw = fmt.Appendf(nil, `{"a": %d}`, c.Uint32()) },
		func(v *metav1.FieldsV1, _ randfill.Continue) { v.SetRawBytes([]byte(`{"f:spec":{}}`)) },
		func(v *v1beta1.HostNetwork, c randfill.Continue) { *v = v1beta1.HostNetwork(pickString(c)) },
		func(v *v1beta1.IdentifierType, c randfill.Continue) { *v = v1beta1.IdentifierType(pickString(c)) },
	)
}

func pickString(c randfill.Continue) string {
	if c.Bool() {
		return interesting[c.Intn(len(interesting))]
	}
	return c.String(12)
}

// forged are annotations that a client may write to pass values by the API server's validation.
var forged = []string{
	`{"spec.hostNetwork": {"hostNetwork": 5}}`,
	`{"spec.hostNetwork": {"hostNetwork": {"a": [1.5, null]}}, "spec.identifiers": {"identifiers": null}}`,
	`{"spec.serverAddresses": {"serverAddresses": "a"}, "spec.identifiers": {"identifiers": [1]}}`,
	`{"spec.serverAddresses": {"serverAddresses": [{"host": 1}]}, "spec.identifiers": {"identifiers": [{"type": "Host", "value": 1}]}}`,
	`{"spec.serverAddresses": {"serverAddresses": [{"port": 9223372036854775807}]}, "spec.identifiers": {"identifiers": [{"kind": {}}]}}`,
	`{"spec.serverAddresses": {"serverHost": 1, "agentPort": "a"}, "spec.identifiers": {"identifiers": []}}`,
	`{"spec.konnectivity.agent.hostNetwork": {"hostNetwork": 5}, "spec.pki.validitySeconds": {"validitySeconds": "1"}}`,
	`{"spec.pki.validitySeconds": {"validitySeconds": 9223372036854775807}, "spec.pki.caValiditySeconds": {"caValiditySeconds": 1.5}}`,
	`{"spec.pki.validitySeconds": {"validity": 1}, "spec.pki.caValiditySeconds": {"caValidity": "soon"}, "spec.konnectivity.agent.hostNetwork": {"hostNetwork": "yes"}}`,
}

// TestForged: whatever an annotation holds, values are of their fields' types.
func TestForged(t *testing.T) {
	for _, text := range forged {
		for _, to := range []string{conversion.V1alpha1, conversion.V1beta1} {
			decodes(t, text, to)
		}
	}
}

// FuzzAnnotations: the same for any annotation.
func FuzzAnnotations(f *testing.F) {
	for _, text := range forged {
		f.Add(text, true)
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text string, up bool) {
		to := conversion.V1alpha1
		if up {
			to = conversion.V1beta1
		}
		decodes(t, text, to)
	})
}

// decodes fails the test unless empty objects with an annotation convert to a version and then have
// values of its types only, which decode. A duration of v1alpha1 may be any string.
func decodes(t *testing.T, annotation, to string) {
	t.Helper()
	from, name := conversion.V1beta1, conversion.LostV1alpha1
	if to == conversion.V1beta1 {
		from, name = conversion.V1alpha1, conversion.LostV1beta1
	}
	for kind, target := range map[string]any{"Bundle": &v1beta1.Bundle{}, "TunnelPool": &v1beta1.TunnelPool{}} {
		out := convert(t, map[string]any{
			"apiVersion": from, "kind": kind, "metadata": map[string]any{"name": "a", "annotations": map[string]any{name: annotation}},
			"spec": map[string]any{"pki": map[string]any{}, "konnectivity": map[string]any{"agent": map[string]any{}}},
		}, to)
		if !conversion.WellTyped(out) {
			t.Errorf("%s to %s with the annotation %s: %v", kind, to, annotation, out)
		}
		text, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		if to != conversion.V1beta1 {
			continue
		}
		if err := json.Unmarshal(text, target); err != nil {
			t.Errorf("%s with the annotation %s does not decode: %v: %s", kind, annotation, err, text)
		}
	}
}

// TestWrongTypes: a value that is not of its field's type converts without an error, and is gone
// after that: no client could decode it.
func TestWrongTypes(t *testing.T) {
	for name, tc := range map[string]struct{ version, other, spec, want string }{
		"object for a duration": {conversion.V1alpha1, conversion.V1beta1, `{"pki": {"validity": {"a": [1.5, null]}, "algorithm": "x"}}`, `{"pki": {"algorithm": "x"}}`},
		"64 bits":               {conversion.V1beta1, conversion.V1alpha1, `{"pki": {"validitySeconds": 9223372036854775807}}`, `{"pki": {}}`},
		"number for an enum":    {conversion.V1beta1, conversion.V1alpha1, `{"konnectivity": {"agent": {"hostNetwork": 5}}}`, `{"konnectivity": {"agent": {}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			in := decode(t, fmt.Sprintf(`{"apiVersion": %q, "kind": "Bundle", "metadata": {"name": "default"}, "spec": %s}`, tc.version, tc.spec))
			back := convert(t, convert(t, in, tc.other), tc.version)
			if diff := cmp.Diff(decode(t, tc.want), back["spec"]); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// FuzzRoundTrip: no JSON makes Convert fail, and what is of its field's type is not lost.
func FuzzRoundTrip(f *testing.F) {
	for _, s := range interesting {
		text, err := json.Marshal(map[string]any{"konnectivity": map[string]any{"serverHost": s, "agent": map[string]any{"identifiers": s, "hostNetwork": s}}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), true)
		f.Add(string(text), false)
	}
	f.Add(`{"pki": {"validity": 1e400, "caValidity": null}, "konnectivity": []}`, true)
	f.Add(`{"pki": {"validitySeconds": 1.5, "caValiditySeconds": -1}, "konnectivity": {"serverAddresses": [1]}}`, false)
	f.Fuzz(func(t *testing.T, spec string, old bool) {
		version, other := conversion.V1alpha1, conversion.V1beta1
		names := []string{"Seconds\"", "serverAddresses"}
		if !old {
			version, other = other, version
			names = []string{"leaseDuration\"", "renewDeadline\"", "retryPeriod\"", "drainTimeout\"", "alidity\"", "serverHost", "agentPort"}
		}
		for _, name := range names {
			if strings.Contains(spec, name) {
				t.Skip("has fields of the other version, which the API server has pruned")
			}
		}
		var m map[string]any
		if utiljson.Unmarshal([]byte(spec), &m) != nil {
			t.Skip("no JSON")
		}
		in := map[string]any{"apiVersion": version, "kind": "Bundle", "metadata": map[string]any{"name": "default"}, "spec": m}
		there := convert(t, in, other)
		back := convert(t, there, version)
		if diff := cmp.Diff(in, back); diff != "" && conversion.WellTyped(in) {
			t.Errorf("-before +after:\n%s", diff)
		}
		// What is of another type is not restored, but never an error.
		for _, o := range []map[string]any{there, back} {
			if !conversion.WellTyped(o) {
				t.Errorf("a value of another type after a conversion: %v", o)
			}
		}
	})
}
