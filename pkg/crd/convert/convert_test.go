// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"encoding/pem"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/crd/convert"
	"github.com/fairlead-dev/fairlead/pkg/crd/internal/webhooktest"
	"github.com/fairlead-dev/fairlead/pkg/crd/manifest"
)

const samples = `
apiVersion: example.com/v1beta1
kind: CronTab
metadata: {name: local, namespace: default, labels: {a: b}}
hostPort: localhost:1234
---
apiVersion: example.com/v1beta1
kind: CronTab
metadata: {name: resists, namespace: default, labels: {a: b}}
hostPort: unsplittable
---
apiVersion: example.com/v1
kind: CronTab
metadata: {name: other, namespace: default, labels: {a: b}}
host: example.com
port: "2345"
`

// start serves the webhook with a mistake and returns its definition and samples.
func start(t *testing.T, mistake webhooktest.Mistake) (*crd.Definition, []*unstructured.Unstructured, convert.Endpoint) {
	t.Helper()
	server := httptest.NewTLSServer(webhooktest.Handler(mistake))
	t.Cleanup(server.Close)
	docs, err := manifest.Load([]string{"../testdata/crontabs-versions.yaml"}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := crd.Decode(docs[0])
	if err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	endpoint, err := convert.NewEndpoint(server.URL, ca, nil)
	if err != nil {
		t.Fatal(err)
	}
	docs, err = manifest.Load([]string{"-"}, false, strings.NewReader(samples))
	if err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	for _, doc := range docs {
		objects = append(objects, doc.Object)
	}
	return d, objects, endpoint
}

// TestMistakes proves that a correct webhook has no problem, in both versions of
// ConversionReview, and that each mistake is found under its rule.
// It observes VER-61, VER-93, VER-94 and VER-95 of docs/requirements.md.
func TestMistakes(t *testing.T) {
	want := map[string][]string{
		"":                   nil,
		"wrong uid":          {"error failed"},
		"no objects":         {"error failed"},
		"failed status":      {"error failed"},
		"renamed":            {"error identity"},
		"other namespace":    {"error identity"},
		"other object uid":   {"error identity"},
		"label is a number":  {"error metadata"},
		"bad label":          {"error metadata"},
		"labels dropped":     {"error lost"},
		"finalizers added":   {"warning metadata"},
		"other kind":         {"error identity"},
		"version not set":    {"error identity"},
		"no metadata":        {"error metadata"},
		"undeclared field":   {"error undeclared"},
		"port lost":          {"error changed", "error lost"},
		"status 500":         {"error failed"},
		"not JSON":           {"error failed"},
		"other review kind":  {"error failed"},
		"no response":        {"error failed"},
		"more than a list":   {"error list-failed"},
		"slow":               {"warning slow"},
		"one object resists": {"error failed", "error list-failed"},
	}
	for name, m := range webhooktest.Mistakes {
		t.Run(name, func(t *testing.T) {
			d, objects, endpoint := start(t, m.Mistake)
			options := convert.Options{Slow: time.Minute}
			if name == "slow" {
				options.Slow = 100 * time.Millisecond
			}
			r, err := convert.Run(t.Context(), d, objects, endpoint, options)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range r.Problems {
				if p.Rule == "content-type" {
					continue // that of an error page
				}
				got = append(got, string(p.Level)+" "+p.Rule)
			}
			slices.Sort(got)
			if diff := cmp.Diff(want[name], slices.Compact(got)); diff != "" {
				t.Errorf("problems (-want +got):\n%s\n%+v", diff, r.Problems)
			}
			if len(r.Calls) < 4 {
				t.Errorf("only %d calls", len(r.Calls))
			}
		})
	}
}

// TestOneObject proves that the object and the field of a problem are named, and that a
// failure of one object does not hide the others.
// It observes VER-96 of docs/requirements.md.
func TestOneObject(t *testing.T) {
	d, objects, endpoint := start(t, webhooktest.Mistakes["one object resists"].Mistake)
	r, err := convert.Run(t.Context(), d, objects, endpoint, convert.Options{Slow: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	want := convert.Problem{Level: convert.Error, Rule: "failed", Object: "resists", From: "v1beta1", To: "v1", Message: "resists cannot be converted"}
	if !slices.Contains(r.Problems, want) {
		t.Errorf("problems %+v lack %+v", r.Problems, want)
	}
	d, objects, endpoint = start(t, webhooktest.Mistakes["port lost"].Mistake)
	if r, err = convert.Run(t.Context(), d, objects, endpoint, convert.Options{Slow: time.Minute}); err != nil {
		t.Fatal(err)
	}
	found := func(object, field string) bool {
		return slices.ContainsFunc(r.Problems, func(p convert.Problem) bool { return p.Object == object && p.Field == field })
	}
	if !found("local", "hostPort") || !found("other", "port") || found("only-metadata-v1", "port") {
		t.Errorf("problems are %+v", r.Problems)
	}
}

// TestBadInput proves that what keeps the tool from its work is an error that says so.
// It observes VER-62 and VER-63 of docs/requirements.md.
func TestBadInput(t *testing.T) {
	d, objects, endpoint := start(t, nil)
	objects[0].SetKind("Other")
	if _, err := convert.Run(t.Context(), d, objects, endpoint, convert.Options{}); err == nil || !strings.Contains(err.Error(), "is not of a version of crontabs.example.com") {
		t.Errorf("error %v", err)
	}
	if _, err := convert.NewEndpoint("http://127.0.0.1/", nil, nil); err == nil {
		t.Error("http is accepted")
	}
	if _, err := convert.NewEndpoint("https://127.0.0.1/", []byte("nothing"), nil); err == nil {
		t.Error("a CA bundle without a certificate is accepted")
	}
	untrusted, err := convert.NewEndpoint(endpoint.URL, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, objects, _ = start(t, nil)
	r, err := convert.Run(t.Context(), d, objects, untrusted, convert.Options{})
	if err != nil || r.Errors() == 0 || !strings.Contains(r.Problems[0].Message, "certificate") {
		t.Errorf("an untrusted certificate: %+v, %v", r, err)
	}
	url, _, service, err := convert.Of(d.CustomResourceDefinition)
	if err != nil || url != "https://example-conversion-webhook-server.default.svc:443/crdconvert" || service == nil {
		t.Errorf("the webhook of the definition is %q, %v, %v", url, service, err)
	}
	d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	if _, _, _, err := convert.Of(d.CustomResourceDefinition); err == nil || !strings.Contains(err.Error(), "--url") {
		t.Errorf("a definition without a webhook: %v", err)
	}
}
