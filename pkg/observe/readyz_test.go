// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestReadyz proves that an API server that lists a failed check has answered, and that any other refusal is an error that has its reason: a user who
// may not read /readyz and a proxy in between do not know whether the API server is ready.
func TestReadyz(t *testing.T) {
	for name, tc := range map[string]struct {
		code              int
		kind, body, cause string
	}{
		"ready":     {http.StatusOK, "text/plain", "[+]ping ok\n[+]etcd ok\nreadyz check passed\n", ""},
		"not ready": {http.StatusInternalServerError, "text/plain", "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n", ""},
		"forbidden": {http.StatusForbidden, "application/json",
			`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"forbidden: User \"x\" cannot get path \"/readyz\"","reason":"Forbidden","code":403}`, "cannot get path"},
		"a proxy":   {http.StatusBadGateway, "text/html", "<html><body>Bad Gateway</body></html>", "Bad Gateway"},
		"a timeout": {http.StatusInternalServerError, "text/plain", "request timed out", "request timed out"},
	} {
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", tc.kind)
			w.WriteHeader(tc.code)
			_, _ = w.Write([]byte(tc.body))
		}))
		body, err := collectorOf(t, api.URL).readyz(t.Context())
		api.Close()
		switch {
		case tc.cause == "" && (err != nil || body != tc.body):
			t.Errorf("%s: %q, %v", name, body, err)
		case tc.cause != "" && (err == nil || !strings.Contains(err.Error(), tc.cause)):
			t.Errorf("%s: %q, %v, want %q", name, body, err, tc.cause)
		}
	}
}
