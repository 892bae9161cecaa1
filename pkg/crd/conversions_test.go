// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/crd/convert"
	"github.com/fairlead-dev/fairlead/pkg/crd/internal/crdtest"
	"github.com/fairlead-dev/fairlead/pkg/crd/internal/webhooktest"
	"github.com/fairlead-dev/fairlead/pkg/crd/lint"
)

// testChanges proves that kube-apiserver refuses a change of a definition in testdata/changes exactly where the
// tool says so.
func (e *env) testChanges(t *testing.T) {
	testutil.Full(t, "TestChanges judges the same changes without an API server")
	for _, c := range crdtest.Changes(t) {
		t.Run(c.Name, func(t *testing.T) {
			old, current := c.Generations(t)
			if a := e.do(t, http.MethodPost, definitionsPath, old.Document.Raw); a.status != nil {
				t.Fatal(a.status)
			}
			e.established(t, old.Name)
			stored, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), old.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			body := withVersion(t, current.Document.Raw, stored.ResourceVersion)
			got := e.do(t, http.MethodPut, definitionsPath+"/"+old.Name+"?dryRun=All", body)
			findings, err := lint.Change(t.Context(), current, old)
			if err != nil {
				t.Fatal(err)
			}
			compareDefinition(t, got, findings)
		})
	}
}

// testConversions proves for each mistake of a webhook that kube-apiserver refuses the
// conversion of an object exactly if the tool reports that its request fails.
// It observes VER-61, VER-66, VER-67, VER-93, VER-94 and VER-95 of docs/requirements.md.
// It also observes OLD-53 of docs/requirements.md.
func (e *env) testConversions(t *testing.T) {
	testutil.Full(t, "makes each mistake of a webhook")
	i := 0
	for name, m := range webhooktest.Mistakes {
		i++
		index := 600 + i
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewTLSServer(webhooktest.Handler(m.Mistake))
			t.Cleanup(server.Close)
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			c := &testCase{File: "crontabs-versions.yaml", Index: index, Set: map[string]any{"spec.conversion": map[string]any{
				"strategy": "Webhook", "webhook": map[string]any{"conversionReviewVersions": []any{"v1"}, "clientConfig": map[string]any{"url": server.URL, "caBundle": ca}}}}}
			d := c.Definition(t, nil)
			if a := e.do(t, http.MethodPost, definitionsPath, d.Document.Raw); a.status != nil {
				t.Fatal(a.status)
			}
			e.established(t, d.Name)
			sample := map[string]any{"metadata": map[string]any{"name": "resists", "namespace": "default", "labels": map[string]any{"a": "b"}}, "hostPort": "localhost:1234"}
			body := c.Body(d, objectCase{}, 0, sample)
			if a := e.served(t, d, http.MethodPost, url(d, body, ""), body); a.status != nil {
				t.Fatal(a.status)
			}
			got := e.do(t, http.MethodGet, strings.Replace(url(d, body, "resists"), "v1beta1", "v1", 1), nil)

			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(body); err != nil {
				t.Fatal(err)
			}
			endpoint, err := convert.NewEndpoint(server.URL, ca, nil)
			if err != nil {
				t.Fatal(err)
			}
			r, err := convert.Run(t.Context(), d, []*unstructured.Unstructured{u}, endpoint, convert.Options{Slow: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			refuses := false
			for _, p := range r.Problems {
				if p.Object == "resists" && p.To == "v1" {
					refuses = refuses || p.Rule == "failed" || p.Level == convert.Error && (p.Rule == "identity" || p.Rule == "metadata")
				}
			}
			if refuses != (got.status != nil) || refuses != m.Refused {
				t.Errorf("the API server says %+v, the tool %+v", got.status, r.Problems)
			}
			if name == "failed status" && !strings.Contains(got.status.Message, "not today") {
				t.Errorf("the client is not told the webhook's message: %s", got.status.Message)
			}
		})
	}
}
