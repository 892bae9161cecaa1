// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/apiclient"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tlsreload"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestStateOfOptions: the state has when the certificate expires that agents see and, of a server that counts by Leases, the
// number of those that are valid.
func TestStateOfOptions(t *testing.T) {
	s := server.New(server.Config{ServerID: "s1", ServerCount: 7}, server.NewMetrics())
	defer s.Shutdown(t.Context())
	o := parse(t, "--lease-label=a=b", "--mode=http-connect")
	src := &stateSource{o: o, s: s}
	if st := src.State(); st.Server.CertificateNotAfter != nil || st.Server.CountMode != state.CountByFlag || st.Server.Count != 7 || st.Server.Mode != "http-connect" {
		t.Errorf("without a certificate and Leases: %+v", st.Server)
	}
	expires := time.Now().Add(time.Hour).Truncate(time.Second)
	cert, key := tunneltest.NewCA(t, t.TempDir()).Issue(t, "server", expires)
	var err error
	if o.agentCertificate, err = tlsreload.NewLoader(tlsreload.Files{Cert: cert, Key: key}, logr.Discard()); err != nil {
		t.Fatal(err)
	}
	src.leases = keepLease(t.Context(), o, leaseAPI(t, time.Second, time.Minute, time.Minute), server.NewMetrics())
	tunneltest.Eventually(t, tunneltest.Patience, "the Leases are listed", func() bool { return src.State().Server.Count == 2 })
	st := src.State()
	if at := st.Server.CertificateNotAfter; at == nil || !at.Equal(expires) || st.Server.CountMode != state.CountByLeases {
		t.Errorf("with a certificate until %v and Leases: %+v", expires, st.Server)
	}
	src.leases.release(t.Context())
}

// leaseAPI has Leases of these durations, which were renewed half a minute ago.
func leaseAPI(t *testing.T, durations ...time.Duration) *apiclient.Client {
	t.Helper()
	var items []apiclient.Lease
	for i, d := range durations {
		seconds := int32(d.Seconds())
		items = append(items, apiclient.Lease{Metadata: apiclient.Meta{Name: fmt.Sprint("lease-", i)},
			Spec: apiclient.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &apiclient.MicroTime{Time: time.Now().Add(-30 * time.Second)}}})
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Query().Has("labelSelector") {
			_ = json.NewEncoder(w).Encode(map[string]any{"items": items})
			return
		}
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(srv.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],
"clusters":[{"name":"k","cluster":{"server":%q}}],"users":[{"name":"u","user":{"token":"me"}}]}`, srv.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := apiclient.Load(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return apiclient.NewClient(cfg)
}
