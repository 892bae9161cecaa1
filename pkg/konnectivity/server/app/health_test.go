// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestHealthPaths checks the paths of the health listener (KON-41). The server is alive from the start. It is ready, at
// /readyz and at the older /ready, only while an agent is connected.
func TestHealthPaths(t *testing.T) {
	r := tunneltest.NewRig(t, server.Config{})
	h := health(r.Server, r.Metrics)
	want := func(path string, code int, text string) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != code || !strings.Contains(w.Body.String(), text) {
			t.Errorf("%s: %d %q, want %d and %q", path, w.Code, w.Body, code, text)
		}
	}
	want("/healthz", http.StatusOK, "ok")
	for _, path := range []string{"/readyz", "/ready"} {
		want(path, http.StatusInternalServerError, "no connection to any proxy agent")
	}
	a := r.StartAgent(agent.Config{}, "")
	for _, path := range []string{"/readyz", "/ready", "/healthz"} {
		want(path, http.StatusOK, "ok")
	}
	want("/metrics", http.StatusOK, "konnectivity_network_proxy_server_ready_backend_connections 1")
	a.Stop()
	tunneltest.Eventually(t, tunneltest.Patience, "the agent is gone", func() bool { return !r.Server.Connected(a.ID) })
	want("/ready", http.StatusInternalServerError, "no connection to any proxy agent")
}
