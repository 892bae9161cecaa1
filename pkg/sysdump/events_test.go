// SPDX-License-Identifier: Apache-2.0

package sysdump_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/sysdump"
)

// TestEvents proves that an archive says so if a namespace has more events than it collects, and that a namespace whose events cannot be read hides
// neither itself nor those of others.
func TestEvents(t *testing.T) {
	const event = `{"items":[{"metadata":{"name":"e","namespace":"kube-system"},"reason":"BackOff","message":"the first one"}],"metadata":{"continue":"%s"}}`
	for name, tc := range map[string]struct {
		more, forbidden string
		want, never     []string
	}{
		"more than are collected": {"x", "", []string{"objects/events.json, some of namespace kube-system", "more than 2000 events"}, []string{"those of namespace"}},
		"not of nodes":            {"", "default", []string{"objects/events.json, those of namespace default", "is forbidden"}, []string{"some of namespace"}},
		"all":                     {"", "", nil, []string{"objects/events.json"}},
	} {
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch r.URL.Path {
			case "/api/v1/namespaces/" + tc.forbidden + "/events":
				w.WriteHeader(http.StatusForbidden)
				_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"events is forbidden"}`))
			case "/api/v1/namespaces/kube-system/events":
				_, _ = fmt.Fprintf(w, event, tc.more)
			default:
				_, _ = w.Write([]byte(`{"items":[]}`))
			}
		}))
		t.Cleanup(api.Close)
		var out bytes.Buffer
		manifest, err := sysdump.Write(t.Context(), observe.Target{Config: &rest.Config{Host: api.URL}, Limit: 5 * time.Second}, &out, sysdump.Options{MaxSize: 10 << 20, LogSize: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if text := unpack(t, &out)["objects/events.json"]; !strings.Contains(text, "the first one") {
			t.Errorf("%s: got %s", name, text)
		}
		missing := fmt.Sprint(manifest.Missing)
		for _, want := range tc.want {
			if !strings.Contains(missing, want) {
				t.Errorf("%s: no %q in %s", name, want, missing)
			}
		}
		for _, never := range tc.never {
			if strings.Contains(missing, never) {
				t.Errorf("%s: %q in %s", name, never, missing)
			}
		}
	}
}
