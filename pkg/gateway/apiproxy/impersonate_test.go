// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
)

// Where the configuration impersonates a user, no client adds to that user or takes its place: neither by a request nor by an
// upgrade. Without that, what clients impersonate reaches the API server.
func TestImpersonation(t *testing.T) {
	api := startAPIServer(t)
	sent := []string{"Impersonate-User: admin", "impersonate-group: system:masters", "IMPERSONATE-UID: 7", "Impersonate-Extra-Scopes: all", "Impersonate-Extra-x%2fy: all", "Impersonate-Later: x"}
	all := strings.Join(sent, "\r\n")
	for name, c := range map[string]struct {
		as   rest.ImpersonationConfig
		want http.Header
	}{
		"user":  {rest.ImpersonationConfig{UserName: "jane"}, http.Header{"Impersonate-User": {"jane"}}},
		"group": {rest.ImpersonationConfig{UserName: "jane", Groups: []string{"team"}}, http.Header{"Impersonate-User": {"jane"}, "Impersonate-Group": {"team"}}},
		"all": {rest.ImpersonationConfig{UserName: "jane", UID: "1", Groups: []string{"team"}, Extra: map[string][]string{"scopes": {"few"}}},
			http.Header{"Impersonate-User": {"jane"}, "Impersonate-Group": {"team"}, "Impersonate-Uid": {"1"}, "Impersonate-Extra-Scopes": {"few"}}},
		"none": {rest.ImpersonationConfig{}, http.Header{"Impersonate-User": {"admin"}, "Impersonate-Group": {"system:masters"}, "Impersonate-Uid": {"7"},
			"Impersonate-Extra-Scopes": {"all"}, "Impersonate-Extra-X%2fy": {"all"}, "Impersonate-Later": {"x"}}},
	} {
		config := api.config()
		config.Impersonate = c.as
		address, _ := serve(t, Options{Config: config, Filter: filter(t, DefaultAcceptHosts, ".*", "", "")}, 0)
		check := func(kind string) {
			t.Helper()
			got := http.Header{}
			for key, values := range api.seen.Load().Header {
				if strings.HasPrefix(strings.ToLower(key), "impersonate-") {
					got[key] = values
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s, %s: the API server got other headers (-want +got):\n%s", name, kind, diff)
			}
		}
		if got := send(t, address, get("/api", "localhost", all)); got.status != http.StatusOK {
			t.Errorf("%s: status %d: %s", name, got.status, got.body)
		}
		check("request")
		nc, r := dial(t, address, strings.TrimSuffix(upgrade("/pods/p/exec"), "\r\n")+all+"\r\n\r\n")
		switched(t, r)
		check("upgrade")
		_ = nc.Close()
	}
}
