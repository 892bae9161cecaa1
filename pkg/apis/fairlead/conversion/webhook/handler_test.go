// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion/webhook"
)

// typeMeta is that of the reviews that kube-apiserver sends.
var typeMeta = metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "ConversionReview"}

func review(t *testing.T, to string, objects ...string) []byte {
	t.Helper()
	r := &apiextensionsv1.ConversionReview{TypeMeta: typeMeta, Request: &apiextensionsv1.ConversionRequest{UID: "uid-1", DesiredAPIVersion: to}}
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
// It observes VER-60, VER-92, VER-93, VER-94 and VER-95 of docs/requirements.md.
// It also observes OLD-53 and OLD-59 of docs/requirements.md.
func TestConvert(t *testing.T) {
	h := webhook.New(webhook.Options{})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(h)
	w := httptest.NewRecorder()
	named := func(name string) string { return strings.Replace(oldPool, `"a"`, `"`+name+`"`, 1) }
	objects := []string{oldPool, named("b"), strings.Replace(named("c"), "v1alpha1", "v1beta1", 1)}
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("n%d", (i*7)%50)) // not in the order of their names
		objects = append(objects, named(names[i]))
	}
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, webhook.Path, bytes.NewReader(review(t, conversion.V1beta1, objects...))))
	var got apiextensionsv1.ConversionReview
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Response == nil || got.Response.UID != "uid-1" || got.Response.Result.Status != "Success" {
		t.Fatalf("%v: %s", err, w.Body)
	}
	wants := [][]string{{`"name":"a"`, `"hostNetwork":"Enabled"`}, {`"name":"b"`, `"hostNetwork":"Enabled"`}, {`"name":"c"`, `"hostNetwork":true`}}
	for _, name := range names {
		wants = append(wants, []string{`"name":"` + name + `"`, `"hostNetwork":"Enabled"`})
	}
	if len(got.Response.ConvertedObjects) != len(wants) {
		t.Fatalf("%d objects, want %d", len(got.Response.ConvertedObjects), len(wants))
	}
	for i, parts := range wants {
		for _, want := range append(parts, conversion.V1beta1) {
			if raw := string(got.Response.ConvertedObjects[i].Raw); !strings.Contains(raw, want) {
				t.Errorf("object %d: %s lacks %s", i, raw, want)
			}
		}
	}
	want := "# HELP fairlead_conversion_objects_total Converted objects, by kind and apiVersion.\n# TYPE fairlead_conversion_objects_total counter\n" +
		`fairlead_conversion_objects_total{from="fairlead.dev/v1alpha1",kind="TunnelPool",to="fairlead.dev/v1beta1"} 52` + "\n" +
		`fairlead_conversion_objects_total{from="fairlead.dev/v1beta1",kind="TunnelPool",to="fairlead.dev/v1beta1"} 1` + "\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "fairlead_conversion_objects_total"); err != nil {
		t.Error(err)
	}
}

// TestRefuses: what is no conversion is refused with the reason, and one object of an
// unknown kind fails the review as a whole, so that nothing is half converted.
// It observes VER-90, VER-93, VER-94 and VER-95 of docs/requirements.md.
// It also observes OLD-53 of docs/requirements.md.
func TestRefuses(t *testing.T) {
	h := webhook.New(webhook.Options{MaxBytes: 2000})
	for name, tc := range map[string]struct {
		method string
		body   []byte
		code   int
		want   string
	}{
		"method":            {http.MethodGet, nil, http.StatusMethodNotAllowed, "POST"},
		"no JSON":           {http.MethodPost, []byte("{"), http.StatusBadRequest, "ConversionReview"},
		"empty":             {http.MethodPost, []byte("{}"), http.StatusBadRequest, `kind ""`},
		"kind of admission": {http.MethodPost, []byte(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1"}}`), http.StatusBadRequest, `kind "AdmissionReview"`},
		"no request":        {http.MethodPost, []byte(`{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}`), http.StatusBadRequest, "request is missing"},
		"too large":         {http.MethodPost, review(t, conversion.V1beta1, fmt.Sprintf(`{"a": %q}`, strings.Repeat("x", 2000))), http.StatusRequestEntityTooLarge, "2000 bytes"},
		"kind":              {http.MethodPost, review(t, conversion.V1beta1, oldPool, strings.Replace(oldPool, "TunnelPool", "Pond", 1)), http.StatusOK, `object 1: kind \"Pond\"`},
		"version":           {http.MethodPost, review(t, "fairlead.dev/v9", oldPool), http.StatusOK, "fairlead.dev/v9"},
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

// TestContentType checks that a review is taken as JSON alone.
// VER-90: A request has Content-Type: application/json.
func TestContentType(t *testing.T) {
	h := webhook.New(webhook.Options{})
	for contentType, code := range map[string]int{
		"application/json": http.StatusOK, "application/json; charset=utf-8": http.StatusOK, "": http.StatusOK,
		"application/yaml": http.StatusBadRequest, "application/vnd.kubernetes.protobuf": http.StatusBadRequest, "text/plain": http.StatusBadRequest, ";": http.StatusBadRequest,
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, webhook.Path, bytes.NewReader(review(t, conversion.V1beta1, oldPool)))
		r.Header.Set("Content-Type", contentType)
		h.ServeHTTP(w, r)
		if w.Code != code || code == http.StatusBadRequest && !strings.Contains(w.Body.String(), "application/json") {
			t.Errorf("%q: %d: %s, want %d", contentType, w.Code, w.Body, code)
		}
	}
}

// TestReviewVersions checks that a review of each version is answered in its version, which has to be the one of the request.
// VER-93: The answer is a ConversionReview of the version received, as JSON, with status 200.
// OLD-40: The webhook answers v1beta1 as well, which kube-apiserver sends to a webhook that lists it first.
func TestReviewVersions(t *testing.T) {
	h := webhook.New(webhook.Options{})
	for _, version := range []string{"v1", "v1beta1"} {
		body := fmt.Sprintf(`{"apiVersion": "apiextensions.k8s.io/%s", "kind": "ConversionReview", "request": {"uid": "uid-1", "desiredAPIVersion": "fairlead.dev/v1beta1", "objects": [%s]}}`, version, oldPool)
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, webhook.Path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
			t.Fatalf("%s: %d, %v: %s", version, w.Code, w.Header(), w.Body)
		}
		// Decoded as kube-apiserver does: by apiVersion and kind, into the type of the version.
		scheme := runtime.NewScheme()
		if err := errors.Join(apiextensionsv1.AddToScheme(scheme), apiextensionsv1beta1.AddToScheme(scheme)); err != nil {
			t.Fatal(err)
		}
		answer, gvk, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer().Decode(w.Body.Bytes(), nil, nil)
		if err != nil || gvk.Version != version {
			t.Fatalf("%s: decoded as %v: %v: %s", version, gvk, err, w.Body)
		}
		uid, status, objects := types.UID(""), "", []runtime.RawExtension(nil)
		switch a := answer.(type) {
		case *apiextensionsv1.ConversionReview:
			uid, status, objects = a.Response.UID, a.Response.Result.Status, a.Response.ConvertedObjects
		case *apiextensionsv1beta1.ConversionReview:
			uid, status, objects = a.Response.UID, a.Response.Result.Status, a.Response.ConvertedObjects
		}
		if uid != "uid-1" || status != metav1.StatusSuccess || len(objects) != 1 || !strings.Contains(string(objects[0].Raw), `"hostNetwork":"Enabled"`) {
			t.Errorf("%s: %s", version, w.Body)
		}
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

// TestStoredObjects: each object that etcd takes is converted, also by a handler with the operator's
// limits: brackets and commas in strings are no values, and an object that many clients have written has
// more values for its size than others.
func TestStoredObjects(t *testing.T) {
	const etcdTakes = 3 << 19
	annotation := func(value string) string {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{"apiVersion": "fairlead.dev/v1alpha1", "kind": "TunnelPool", "metadata": {"name": "a", "annotations": {"a": %s}}}`, text)
	}
	var fields, managed strings.Builder
	for n := range 0x1000 {
		fmt.Fprintf(&fields, `,"f:%x":{}`, n)
	}
	managed.WriteString(`{"apiVersion": "fairlead.dev/v1alpha1", "kind": "TunnelPool", "metadata": {"name": "a", "managedFields": [{}`)
	for managed.Len() < etcdTakes-2*fields.Len() { // many clients have set the same labels
		fmt.Fprintf(&managed, `,{"fieldsV1": {"f:metadata": {"f:labels": {".": {}%s}}}}`, &fields)
	}
	managed.WriteString(`]}}`)
	for name, object := range map[string]string{
		"braces":         annotation(strings.Repeat("{", 256<<10-10)),
		"brackets":       annotation(strings.Repeat("[", 256<<10-10)),
		"commas":         annotation(strings.Repeat(",", 256<<10-10)),
		"quoted quotes":  annotation(strings.Repeat(`\"{`, 64<<10)),
		"managed fields": managed.String(),
	} {
		if len(object) > etcdTakes {
			t.Fatalf("%s: %d bytes", name, len(object))
		}
		w := httptest.NewRecorder()
		body := review(t, conversion.V1beta1, object)
		webhook.New(webhook.Options{MaxBytes: 8 << 20}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, webhook.Path, bytes.NewReader(body)))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"status":"Success"`) {
			t.Errorf("%s: status %d: %.200s", name, w.Code, w.Body)
		}
	}
}

// post sends a review and returns the status of the answer and its header Retry-After.
func post(t *testing.T, client *http.Client, url string, body io.Reader) (status int, retryAfter string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode, response.Header.Get("Retry-After")
}

// TestSlowRequests: a request takes no place before its body is whole, however much of it has come.
func TestSlowRequests(t *testing.T) {
	server := httptest.NewServer(webhook.New(webhook.Options{MaxInFlight: 1}))
	defer server.Close()
	body, writer := io.Pipe()
	first := make(chan int, 1)
	go func() {
		status, _ := post(t, server.Client(), server.URL, body)
		first <- status
	}()
	for _, size := range []int{1, 300 << 10} {
		if _, err := writer.Write(bytes.Repeat([]byte(" "), size)); err != nil { // returns when the transport has read it
			t.Fatal(err)
		}
		for range 10 {
			if status, _ := post(t, server.Client(), server.URL, bytes.NewReader(review(t, conversion.V1beta1, oldPool))); status != http.StatusOK {
				t.Errorf("while %d bytes of another request have come: %d", size, status)
			}
		}
	}
	if _, err := writer.Write(review(t, conversion.V1beta1, oldPool)); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	if status := <-first; status != http.StatusOK {
		t.Errorf("the slow request: %d", status)
	}
}

// TestQueue: requests beyond the limit wait for a place. One that gets none in time is answered
// with status 429 and Retry-After, without which kube-apiserver does not send it again.
func TestQueue(t *testing.T) {
	large := make([]string, 4000)
	for i := range large {
		large[i] = oldPool
	}
	body := review(t, conversion.V1beta1, large...)
	run := func(wait time.Duration) map[int]int {
		server := httptest.NewServer(webhook.New(webhook.Options{MaxInFlight: 1, MaxWait: wait}))
		defer server.Close()
		var mu sync.Mutex
		var group sync.WaitGroup
		statuses := map[int]int{}
		for range 20 {
			group.Go(func() {
				status, retryAfter := post(t, server.Client(), server.URL, bytes.NewReader(body))
				if (retryAfter == "1") != (status == http.StatusTooManyRequests) {
					t.Errorf("status %d with Retry-After %q", status, retryAfter)
				}
				mu.Lock()
				defer mu.Unlock()
				statuses[status]++
			})
		}
		group.Wait()
		return statuses
	}
	if statuses := run(time.Minute); statuses[http.StatusOK] != 20 {
		t.Errorf("20 requests at once: %v", statuses)
	}
	if statuses := run(time.Nanosecond); statuses[http.StatusTooManyRequests] == 0 || statuses[http.StatusOK]+statuses[http.StatusTooManyRequests] != 20 {
		t.Errorf("20 requests at once that do not wait: %v", statuses)
	}
}

// TestDuration: the metric has the whole time of each request, from its begin to its answer, also of one that is refused.
func TestDuration(t *testing.T) {
	handler := webhook.New(webhook.Options{})
	const wait = 3 * time.Second
	synctest.Test(t, func(t *testing.T) {
		ask := func(body io.Reader) int {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, webhook.Path, body))
			return w.Code
		}
		body, writer := io.Pipe()
		go func() {
			_, _ = writer.Write([]byte(" ")) // returns when the handler has read it
			time.Sleep(wait)
			_, _ = writer.Write(review(t, conversion.V1beta1, oldPool))
			_ = writer.Close()
		}()
		if status := ask(body); status != http.StatusOK {
			t.Errorf("a slow request: %d", status)
		}
		if status := ask(strings.NewReader("no review")); status != http.StatusBadRequest {
			t.Errorf("no review: %d", status)
		}
	})
	registry := prometheus.NewRegistry()
	registry.MustRegister(handler)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "fairlead_conversion_request_duration_seconds" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		if h.GetSampleCount() != 2 || h.GetSampleSum() != wait.Seconds() {
			t.Errorf("%d requests took %v s, want 2 and %v", h.GetSampleCount(), h.GetSampleSum(), wait)
		}
		if last := h.GetBucket()[len(h.GetBucket())-1].GetUpperBound(); last <= webhook.DefaultMaxWait.Seconds() {
			t.Errorf("the largest bucket is %v s, no more than the longest wait", last)
		}
		return
	}
	t.Error("there is no metric of the duration")
}

// TestMemory: requests that do not end hold no more memory than the limit, over all streams and
// connections, and make way for one that is whole.
func TestMemory(t *testing.T) {
	const unfinished = 150
	server := httptest.NewUnstartedServer(webhook.New(webhook.Options{MaxInFlight: 1, MaxBytes: 1 << 20}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	before := heap()
	part := bytes.Repeat([]byte(" "), 240<<10)
	statuses := make(chan int, unfinished)
	var rest []*io.PipeWriter
	defer func() {
		for _, w := range rest { // the server does not close before that
			_ = w.Close()
		}
	}()
	for range unfinished {
		body, writer := io.Pipe()
		rest = append(rest, writer)
		go func() {
			status, _ := post(t, server.Client(), server.URL, struct {
				io.Reader
				io.Closer // the client closes the body when it has an answer
			}{io.MultiReader(bytes.NewReader(part), body), body})
			statuses <- status
		}()
	}
	for range unfinished - 10 { // all but those for which there is memory, 2 MiB
		select {
		case status := <-statuses:
			if status != http.StatusTooManyRequests {
				t.Fatalf("an unfinished request: %d", status)
			}
		case <-time.After(time.Minute):
			t.Fatal("unfinished requests stay")
		}
	}
	if grown := heap() - before; grown > 16<<20 {
		t.Errorf("the heap grew by %d KiB", grown>>10)
	}
	large := review(t, conversion.V1beta1, fmt.Sprintf(`{"apiVersion": "fairlead.dev/v1alpha1", "kind": "TunnelPool", "metadata": {"name": %q}}`, strings.Repeat("x", 1<<19)))
	if status, _ := post(t, server.Client(), server.URL, bytes.NewReader(large)); status != http.StatusOK {
		t.Errorf("a whole request beside the others: %d", status)
	}
}

// heap is what is in use, without the pools of net/http, which the second collection empties: the
// client has buffers of 512 KiB.
func heap() int64 {
	for range 3 {
		goruntime.GC()
	}
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestSlowReaders: a client that does not read its answer keeps no place.
func TestSlowReaders(t *testing.T) {
	server := httptest.NewServer(webhook.New(webhook.Options{MaxInFlight: 1}))
	defer server.Close()
	large := make([]string, 40_000)
	for i := range large {
		large[i] = oldPool
	}
	body := review(t, conversion.V1beta1, large...)
	c, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", webhook.Path, len(body), body); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil { // the answer has begun
		t.Fatal(err)
	}
	if status, _ := post(t, server.Client(), server.URL, bytes.NewReader(review(t, conversion.V1beta1, oldPool))); status != http.StatusOK {
		t.Errorf("while another client does not read: %d", status)
	}
}
