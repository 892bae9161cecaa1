// SPDX-License-Identifier: Apache-2.0

package failoverbarrier

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// TestMetadataLister: pages follow each other, a token that expired is followed by the one that came with the error, and
// what is asked is the metadata of bound pods past all caches.
func TestMetadataLister(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/api/v1/pods" || q.Get("fieldSelector") != boundPods || q.Get("limit") != "2000" || q.Has("resourceVersion") {
			t.Errorf("asked for %s", r.URL)
		}
		answer := func(code int, body any) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			if err := json.NewEncoder(w).Encode(body); err != nil {
				t.Error(err)
			}
		}
		page := func(name, next string) {
			answer(http.StatusOK, metav1.PartialObjectMetadataList{
				TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, ListMeta: metav1.ListMeta{Continue: next},
				Items: []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}},
			})
		}
		expired := func(next string) {
			answer(http.StatusGone, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
				Reason: metav1.StatusReasonExpired, Code: http.StatusGone, ListMeta: metav1.ListMeta{Continue: next}})
		}
		switch q.Get("continue") {
		case "":
			page("a", "old")
		case "old":
			expired("new")
		case "new":
			page("b", "")
		case "lost":
			expired("")
		case "away":
			answer(http.StatusServiceUnavailable, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable})
		}
	}))
	t.Cleanup(server.Close)
	client, err := metadata.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	l := metadataLister{client}
	for _, tc := range []struct {
		token, pods, next string
		fails             bool
	}{
		{"", "[a]", "old", false}, {"old", "[]", "new", true}, {"new", "[b]", "", false}, {"lost", "[]", "", true}, {"away", "[]", "away", true},
	} {
		pods, next, err := l.page(t.Context(), tc.token)
		if got := fmt.Sprint(slices.Sorted(maps.Keys(pods))); got != tc.pods || next != tc.next || (err != nil) != tc.fails {
			t.Errorf("%q: pods %s, next %q, error %v", tc.token, got, next, err)
		}
	}
}
