// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// TestStreams: the proxy takes those requests for watches and followed logs that kube-apiserver does, whose own functions say so
// here.
func TestStreams(t *testing.T) {
	apiServer := apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	paths := []string{
		"/api/v1/pods", "/apis/apps/v1/deployments", "/api/v1/watch/pods", "/api/v1/watch/namespaces/x/pods", "/api/v1/watch/namespaces/x/pods/p",
		"/apis/apps/v1/watch/deployments", "/apis/apps/v1/namespaces/x/deployments", "/api/v1/namespaces/watch/pods", "/apis/apps/v1/namespaces/watch/deployments",
		"/api/v1/namespaces/api/pods", "/api/v1", "/apis/apps/v1", "/version",
	}
	queries := []string{
		"", "watch", "watch=", "watch=true", "watch=True", "watch=TRUE", "watch=1", "watch=t", "watch=yes", "watch=x%20y", "watch=0", "watch=false", "watch=False", "watch=FALSE",
		"watch=00", "watch=false&watch=true", "watch=true&watch=false", "Watch=true", "watches=true", "a=b&watch=True&c=d",
	}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		for _, path := range paths {
			for _, query := range queries {
				req := httptest.NewRequest(method, "http://localhost"+path+"?"+query, http.NoBody)
				info, err := apiServer.NewRequestInfo(req)
				if err != nil {
					t.Fatal(err)
				}
				want := kindRequest
				if info.IsResourceRequest && info.Verb == "watch" && method == http.MethodGet {
					want = kindStream
				}
				if !info.IsResourceRequest && query != "" { // the parameter means nothing there
					continue
				}
				if got := kindOf(req); got != want {
					t.Errorf("%s %s?%s is a %s, and kube-apiserver takes it for %q", method, path, query, got, info.Verb)
				}
				req = httptest.NewRequest(method, "http://localhost/k8s/clusters/c1"+path+"?"+query, http.NoBody)
				if got := kindOf(req); got != want {
					t.Errorf("%s %s?%s below a prefix is a %s, want %s", method, path, query, got, want)
				}
			}
		}
	}
	for _, query := range queries {
		query = strings.ReplaceAll(query, "watch", "follow")
		req := httptest.NewRequest(http.MethodGet, "http://localhost/api/v1/namespaces/x/pods/watch/log?"+query, http.NoBody)
		var follows bool
		values := req.URL.Query()["follow"]
		if err := runtime.Convert_Slice_string_To_bool(&values, &follows, nil); err != nil {
			t.Fatal(err)
		}
		if got := kindOf(req); (got == kindStream) != follows {
			t.Errorf("a log with %q is a %s, and kube-apiserver follows it: %v", query, got, follows)
		}
	}
	// These are a namespace and a Pod.
	if got := kindOf(httptest.NewRequest(http.MethodGet, "http://localhost/api/v1/namespaces/api/pods/watch/log", http.NoBody)); got != kindRequest {
		t.Errorf("a log is a %s", got)
	}
}
