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

// TestHealthPaths checks the paths of the health listener (KON-68), with the answers of upstream's agent. The agent is
// alive from the start, and ready only while it is connected to a server. An agent that is not ready lists its checks. One
// that is ready does so only where the client asks for it.
func TestHealthPaths(t *testing.T) {
	r := tunneltest.NewRig(t, server.Config{})
	p := tunneltest.NewProxy(t, r.AgentTLS)
	p.Refuse(true)
	a := r.LaunchAgent(agent.Config{}, p.Addr)
	h := health(a.Agent, a.Metrics)
	want := func(path string, code int, text string) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != code || w.Body.String() != text {
			t.Errorf("%s: %d %q, want %d %q", path, w.Code, w.Body, code, text)
		}
	}
	want("/healthz", http.StatusOK, "ok")
	for _, path := range []string{"/readyz", "/ready", "/readyz?verbose"} {
		want(path, http.StatusServiceUnavailable, "[+]ping ok\n[-]server-connected failed: no servers connected\n")
	}
	p.Refuse(false)
	tunneltest.Eventually(t, tunneltest.Patience, "the agent is connected", a.Ready)
	for _, path := range []string{"/readyz", "/ready"} {
		want(path, http.StatusOK, "ok")
		want(path+"?verbose", http.StatusOK, "[+]ping ok\n[+]server-connected ok\ncheck passed\n")
		want(path+"?verbose=0", http.StatusOK, "[+]ping ok\n[+]server-connected ok\ncheck passed\n") // its value does not count
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "konnectivity_network_proxy_agent_open_server_connections 1") {
		t.Errorf("/metrics: %d\n%s", w.Code, w.Body)
	}
}
