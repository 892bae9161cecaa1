// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/apiclient"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestLeaseIsTriedAgain: a renewal that fails is tried again before the next one would come,
// and other servers' Leases are left alone meanwhile.
func TestLeaseIsTriedAgain(t *testing.T) {
	var mu sync.Mutex
	var calls []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if calls = append(calls, r.Method+" "+r.URL.Query().Get("labelSelector")); len(calls) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte("{}"))
	}))
	defer srv.Close()
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
	start := time.Now()
	k := keepLease(t.Context(), parse(t, "--lease-label=a=b"), apiclient.NewClient(cfg), server.NewMetrics())
	done := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(calls) >= 4 // the one that failed, GET and PUT, and the list of the others
	}
	for !done() && time.Since(start) < leaseRenew {
		time.Sleep(10 * time.Millisecond)
	}
	if !done() || time.Since(start) >= leaseRenew {
		t.Error("it is not tried again before the next renewal")
	}
	k.release(t.Context())
	want := []string{"GET ", "GET ", "PUT ", "GET a=b", "DELETE "}
	if fmt.Sprint(calls) != fmt.Sprint(want) {
		t.Errorf("calls %q, want %q", calls, want)
	}
}
