// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestImpersonatedUserStays: with --as, the API server takes each client for that user, with the groups, the UID and the extra
// values of the flags and no others, whatever headers the client sends. Without --as, clients impersonate with the rights of the
// kubeconfig, as behind kubectl proxy.
func TestImpersonatedUserStays(t *testing.T) {
	cp := daemontest.SharedControlPlane(t)
	limited := start(t, cp.Kubeconfig, "--port", "0", "--as", "jane", "--as-group", "team")
	open := start(t, cp.Kubeconfig, "--port", "0")
	ask := func(p *process, method, path, body string, headers http.Header) (int, []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(context.Background(), method, "http://"+p.address+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = headers.Clone()
		req.Header.Set("Content-Type", "application/json")
		resp, err := (&http.Client{Timeout: bound}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, answer
	}
	who := func(p *process, headers http.Header) authenticationv1.UserInfo {
		t.Helper()
		var review authenticationv1.SelfSubjectReview
		status, body := ask(p, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`, headers)
		if err := json.Unmarshal(body, &review); err != nil || status != http.StatusCreated {
			t.Fatalf("%v: status %d, %v: %s", headers, status, err, body)
		}
		return review.Status.UserInfo
	}
	for name, headers := range map[string]http.Header{
		"nothing":          {},
		"a group":          {"Impersonate-Group": {"system:masters"}},
		"a user":           {"Impersonate-User": {"admin"}},
		"an empty user":    {"Impersonate-User": {""}, "Impersonate-Group": {"system:masters"}},
		"all":              {"Impersonate-User": {"admin"}, "Impersonate-Group": {"system:masters", "x"}, "Impersonate-Uid": {"7"}, "Impersonate-Extra-Scopes": {"all"}},
		"a UID":            {"Impersonate-Uid": {"7"}},
		"an extra value":   {"Impersonate-Extra-Scopes": {"all"}, "Impersonate-Extra-Example.com%2fkey": {"x"}},
		"in lower case":    {"impersonate-group": {"system:masters"}, "impersonate-user": {"admin"}},
		"of front proxies": {"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}},
		"by Connection":    {"Connection": {"Impersonate-User, Impersonate-Group"}, "Impersonate-Group": {"system:masters"}},
	} {
		got := who(limited, headers)
		slices.Sort(got.Groups)
		if got.Username != "jane" || !slices.Equal(got.Groups, []string{"system:authenticated", "team"}) || got.UID != "" || len(got.Extra) > 0 {
			t.Errorf("%s: the API server took the client for %+v", name, got)
		}
		if status, body := ask(limited, http.MethodGet, "/api/v1/namespaces/default/secrets", "", headers); status != http.StatusForbidden {
			t.Errorf("%s: Secrets: status %d: %s", name, status, body)
		}
	}
	if got := who(open, http.Header{"Impersonate-User": {"joe"}, "Impersonate-Group": {"x"}}); got.Username != "joe" || !slices.Contains(got.Groups, "x") {
		t.Errorf("without --as, the API server took the client for %+v", got)
	}
}
