// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion/webhook"
)

func review(t *testing.T, to string, objects ...string) []byte {
	t.Helper()
	r := &apiextensionsv1.ConversionReview{Request: &apiextensionsv1.ConversionRequest{UID: "uid-1", DesiredAPIVersion: to}}
	for _, o := range objects {
		r.Request.Objects = append(r.Request.Objects, runtime.RawExtension{Raw: []byte(o)})
	}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

const oldPool = `{"apiVersion": "fairlead.dev/v1alpha1", "kind": "TunnelPool", "metadata": {"name": "a"}, "spec": {"hostNetwork": true}}`

// TestConvert: the answer has the request's UID and the objects in their order, and the
// metrics count them.
func TestConvert(t *testing.T) {
	h := webhook.New(webhook.Options{})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(h)
	w := httptest.NewRecorder()
	objects := []string{oldPool, strings.Replace(oldPool, `"a"`, `"b"`, 1), strings.Replace(oldPool, "v1alpha1", "v1beta1", 1)}
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, webhook.Path, bytes.NewReader(review(t, conversion.V1beta1, objects...))))
	var got apiextensionsv1.ConversionReview
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Response == nil || got.Response.UID != "uid-1" || got.Response.Result.Status != "Success" {
		t.Fatalf("%v: %s", err, w.Body)
	}
	for i, want := range []string{`"hostNetwork":"Enabled"`, `"name":"b"`, `"hostNetwork":true`} {
		if raw := string(got.Response.ConvertedObjects[i].Raw); !strings.Contains(raw, want) || !strings.Contains(raw, conversion.V1beta1) {
			t.Errorf("object %d: %s lacks %s", i, raw, want)
		}
	}
	want := "# HELP fairlead_conversion_objects_total Converted objects, by kind and apiVersion.\n# TYPE fairlead_conversion_objects_total counter\n" +
		`fairlead_conversion_objects_total{from="fairlead.dev/v1alpha1",kind="TunnelPool",to="fairlead.dev/v1beta1"} 2` + "\n" +
		`fairlead_conversion_objects_total{from="fairlead.dev/v1beta1",kind="TunnelPool",to="fairlead.dev/v1beta1"} 1` + "\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "fairlead_conversion_objects_total"); err != nil {
		t.Error(err)
	}
}

// TestRefuses: what is no conversion is refused with the reason, and one object of an
// unknown kind fails the review as a whole, so that nothing is half converted.
func TestRefuses(t *testing.T) {
	h := webhook.New(webhook.Options{MaxBytes: 2000})
	for name, tc := range map[string]struct {
		method string
		body   []byte
		code   int
		want   string
	}{
		"method":    {http.MethodGet, nil, http.StatusMethodNotAllowed, "POST"},
		"no JSON":   {http.MethodPost, []byte("{"), http.StatusBadRequest, "ConversionReview"},
		"empty":     {http.MethodPost, []byte("{}"), http.StatusBadRequest, "request is missing"},
		"too large": {http.MethodPost, review(t, conversion.V1beta1, fmt.Sprintf(`{"a": %q}`, strings.Repeat("x", 2000))), http.StatusRequestEntityTooLarge, "2000 bytes"},
		"kind":      {http.MethodPost, review(t, conversion.V1beta1, oldPool, strings.Replace(oldPool, "TunnelPool", "Pond", 1)), http.StatusOK, `object 1: kind \"Pond\"`},
		"version":   {http.MethodPost, review(t, "fairlead.dev/v9", oldPool), http.StatusOK, "fairlead.dev/v9"},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(tc.method, webhook.Path, bytes.NewReader(tc.body)))
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.want) || strings.Contains(w.Body.String(), "convertedObjects\":[{") {
				t.Errorf("%d: %s, want %d with %q", w.Code, w.Body, tc.code, tc.want)
			}
		})
	}
}

// TestManyValues: a small request that would take much memory is refused before that.
func TestManyValues(t *testing.T) {
	const most = 8 << 20
	body := `{"request":{"objects":[{"a":[` + strings.Repeat(`{"":0},`, most/7-100) + `{}]}]}}`
	w := httptest.NewRecorder()
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	webhook.New(webhook.Options{MaxBytes: most}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/convert", strings.NewReader(body)))
	goruntime.ReadMemStats(&after)
	if w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 10*most {
		t.Errorf("%d bytes were allocated for a request of %d", took, len(body))
	}
}

// TestInFlight: a request beyond the limit is refused at once, and its place is free again
// when an earlier one has ended.
func TestInFlight(t *testing.T) {
	h := webhook.New(webhook.Options{MaxInFlight: 1})
	server := httptest.NewServer(h)
	defer server.Close()
	body, writer := io.Pipe()
	first := make(chan error, 1)
	go func() {
		response, err := http.Post(server.URL, "application/json", body)
		if err == nil {
			err = response.Body.Close()
		}
		first <- err
	}()
	if _, err := writer.Write([]byte(" ")); err != nil { // returns when the transport has read it
		t.Fatal(err)
	}
	slow, err := http.Post(server.URL, "application/json", bytes.NewReader(review(t, conversion.V1beta1, oldPool)))
	if err != nil || slow.StatusCode != http.StatusOK {
		t.Fatalf("while another request is sent slowly: %v, %v", slow, err)
	}
	_ = slow.Body.Close()
	if _, err := writer.Write(bytes.Repeat([]byte(" "), 256<<10)); err != nil {
		t.Fatal(err)
	}
	post := func() int {
		response, err := http.Post(server.URL, "application/json", bytes.NewReader(review(t, conversion.V1beta1, oldPool)))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	for code := post(); code != http.StatusTooManyRequests; code = post() { // until the server has begun the first one
		if t.Context().Err() != nil {
			t.Fatal("never refused")
		}
	}
	_ = writer.Close()
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if code := post(); code != http.StatusOK {
		t.Errorf("afterwards: %d", code)
	}
}
