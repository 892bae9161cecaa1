// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

// TestTunnelStateErrors: no API, no right, bad credentials, a server that does not trust
// kube-apiserver, and one that is down, are different things with different remedies, also where
// the API server answers with one status for two of them.
func TestTunnelStateErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		list, group, version int
		none                 bool
		why, hint            string
	}{
		"no API":                 {list: 404, group: 404, version: 200, none: true},
		"no API and no right":    {list: 403, group: 404, version: 200, none: true},
		"no right":               {list: 403, group: 200, version: 200, why: "you lack the right", hint: "--clusterrole=fairlead-tunnel-viewer"},
		"no right, no discovery": {list: 403, group: 403, version: 200, why: "you lack the right", hint: "--clusterrole=fairlead-tunnel-viewer"},
		"bad credentials":        {list: 401, group: 401, version: 401, why: "does not accept your credentials", hint: "kubeconfig"},
		"no trust":               {list: 401, group: 401, version: 200, why: "does not trust kube-apiserver", hint: "extension-apiserver-authentication"},
		"down":                   {list: 503, group: 503, version: 200, why: "registered and not available", hint: "FL-EXT-002"},
		"broken":                 {list: 500, group: 200, version: 200, why: "list tunnel"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				status := tc.list
				switch r.URL.Path {
				case "/version":
					status = tc.version
				case "/apis/tunnel.fairlead.dev":
					status = tc.group
				}
				w.WriteHeader(status)
			}))
			defer server.Close()
			client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			_, err = ReadTunnelState(t.Context(), client.Discovery().RESTClient())
			if errors.Is(err, ErrNoTunnelAPI) != tc.none || err == nil {
				t.Fatalf("%v, want that there is no API: %v", err, tc.none)
			}
			if !strings.Contains(err.Error(), tc.why) || !strings.Contains(check.HintOf(err), tc.hint) || (tc.hint == "") != (check.HintOf(err) == "") {
				t.Errorf("%v\nhint: %s\nwant %q, %q", err, check.HintOf(err), tc.why, tc.hint)
			}
		})
	}
}
