// SPDX-License-Identifier: Apache-2.0

package top

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	tunnelv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/observe"
)

// TestTable proves that each agent has a row for each of its servers, the busiest first, with all numbers; that an agent without a server
// has one, too; and that a server without an answer is named.
func TestTable(t *testing.T) {
	now := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	connected := []metav1.Condition{{Type: tunnelv1alpha1.ConditionConnected, Status: metav1.ConditionTrue}}
	view := Of(observe.TunnelState{
		Agents: []tunnelv1alpha1.TunnelAgent{
			{ObjectMeta: metav1.ObjectMeta{Name: "gone"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "a1"}, Status: tunnelv1alpha1.TunnelAgentStatus{NodeName: "node-1", Version: "v1", Conditions: connected, Servers: []tunnelv1alpha1.AgentServer{
				{ServerID: "three", RTTMicroseconds: 1234, OpenConnections: 1, Stale: true},
				{ServerID: "one", OpenConnections: 2, Since: metav1.NewTime(now.Add(-time.Hour))},
				{ServerID: "two", Links: 3, Protocol: "fairlead", RTTMicroseconds: 1234, OpenConnections: 70, PendingDials: 5, DialsTotal: 800, DialFailures: 9,
					BytesToAgent: 1000, BytesFromAgent: 3 << 20, Draining: true, Since: metav1.NewTime(now.Add(-time.Hour))},
			}}},
		},
		Servers: []tunnelv1alpha1.TunnelServer{{ObjectMeta: metav1.ObjectMeta{Name: "lost"}}},
	})
	var out bytes.Buffer
	if err := view.Write(&out, true, now); err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(out.String()) {
		rows = append(rows, strings.Fields(line))
	}
	for i, want := range []string{
		"AGENT NODE SERVER RTT OPEN DIALS FAILS TO-AGENT FROM-AGENT PENDING LINKS PROTOCOL DRAINING AGE VERSION",
		"a1 node-1 two 1.2ms 70 800 9 1000 3.0Mi 5 3 fairlead true 60m v1",
		"a1 node-1 one - 2 0 0 0 0 0 0 - false 60m v1",
		"a1 node-1 three (stale) - 1 0 0 0 0 0 0 - false - v1",
		"gone - (not connected) - 0 0 0 0 0 0 0 - false - -",
		"", "No answer from lost: its values are missing or old.",
	} {
		if i >= len(rows) || strings.Join(rows[i], " ") != want {
			t.Errorf("line %d: want %q in\n%s", i, want, &out)
		}
	}
}

// run runs the command against a server that answers each list in the same way.
func run(t *testing.T, status int, args ...string) (string, error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"items": [{"metadata": {"name": "x"}}]}`))
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "config")
	config := `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"clusters": [{"name": "c", "cluster": {"server": "` + server.URL + `"}}], "users": [{"name": "u", "user": {}}]}`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	cmd := NewCommand(streams)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{"tunnels", "--kubeconfig", file}, args...))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// TestCommand proves that the formats are those of "fairlead status", and that an API that is missing, or is not available, is said with
// what to do.
func TestCommand(t *testing.T) {
	for format, want := range map[string]string{"json": `"agent": "x"`, "yaml": "agent: x", "wide": "PROTOCOL", "": "(not connected)"} {
		if out, err := run(t, http.StatusOK, "--output", format); err != nil || !strings.Contains(out, want) {
			t.Errorf("%q: %v\n%s", format, err, out)
		}
	}
	for status, want := range map[int]string{
		http.StatusNotFound:           "the cluster has no API tunnel.fairlead.dev: set tunnelAPI.enabled: true",
		http.StatusServiceUnavailable: "fairlead check --only FL-EXT-002",
		http.StatusForbidden:          "--clusterrole=fairlead-tunnel-viewer",
		http.StatusUnauthorized:       "renew those in your kubeconfig",
		http.StatusGatewayTimeout:     "list tunnel",
	} {
		if out, err := run(t, status); err == nil || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%d: %v\n%s", status, err, out)
		}
	}
	if _, err := run(t, http.StatusOK, "-o", "xml"); err == nil || !strings.Contains(err.Error(), "choose json, yaml or wide") {
		t.Errorf("-o xml: %v", err)
	}
}
