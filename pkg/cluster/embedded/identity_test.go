// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
)

// replica serves the metrics of a second scheduler, and is what the plan knows as that.
func replica(t *testing.T, p *plan, i int, master string) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "# TYPE leader_election_master_status gauge\nleader_election_master_status{name=\"kube-scheduler\"} "+master+"\n")
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	p.state.Ports[schedulerName(i)] = port
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(p.PKI("ca.crt"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// leaseServer is an API server that has the second scheduler's Lease alone.
func leaseServer(t *testing.T, holder string) *rest.Config {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/namespaces/kube-system/leases/my-scheduler") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}})
	}))
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}}
}

// TestOwnsIdentity: a holder of the Lease is ours if one of our processes says that it leads; all on this machine have one host's name.
func TestOwnsIdentity(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		identity, holder string
		masters          [2]string
		want             bool
	}{
		"our leader":                    {host + "_1", host + "_1", [2]string{"0", "1"}, true},
		"a stranger on this machine":    {host + "_9", host + "_9", [2]string{"0", "0"}, false},
		"the default scheduler's":       {host + "_9", host + "_1", [2]string{"1", "0"}, false},
		"a stranger elsewhere":          {"elsewhere_1", "elsewhere_1", [2]string{"1", "0"}, false},
		"an event of this machine":      {host, host + "_1", [2]string{"1", "0"}, true},
		"an event of another":           {"elsewhere", host + "_1", [2]string{"1", "0"}, false},
		"a host that begins like ours":  {host + "x", host + "_1", [2]string{"1", "0"}, false},
		"a holder that begins likewise": {host + "x_1", host + "x_1", [2]string{"1", "0"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := testPlan(t, "")
			p.Dir = t.TempDir()
			if err := os.MkdirAll(filepath.Dir(p.PKI("ca.crt")), 0o700); err != nil {
				t.Fatal(err)
			}
			for i, master := range tc.masters {
				replica(t, p, i, master)
			}
			env := p.checkEnv(leaseServer(t, tc.holder))
			if got, err := env.OwnsIdentity(t.Context(), tc.identity); err != nil || got != tc.want {
				t.Errorf("OwnsIdentity(%s) = %t, %v", tc.identity, got, err)
			}
			if !strings.Contains(env.IdentityLimit, "not told apart") {
				t.Errorf("the details do not say what is not looked at: %q", env.IdentityLimit)
			}
		})
	}
}

// TestSilentReplica: who does not answer may lead, unless another does.
func TestSilentReplica(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for master, want := range map[string]string{"1": "", "0": "asking " + schedulerName(0)} {
		p := testPlan(t, "")
		p.Dir = t.TempDir()
		if err := os.MkdirAll(filepath.Dir(p.PKI("ca.crt")), 0o700); err != nil {
			t.Fatal(err)
		}
		replica(t, p, 0, "1").Close()
		replica(t, p, 1, master)
		got, err := p.checkEnv(leaseServer(t, host+"_1")).OwnsIdentity(t.Context(), host+"_1")
		if got != (want == "") || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("the other's status %s: %t, %v", master, got, err)
		}
	}
}
