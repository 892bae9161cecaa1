// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
)

// TestStaleServersDoNotCount: the table of agents counts no server that has stopped to show its state, and shows no round
// trip to one. Counts of what was carried stay.
func TestStaleServersDoNotCount(t *testing.T) {
	a := &v1alpha1.TunnelAgent{}
	a.Status.Servers = []v1alpha1.AgentServer{
		{ServerID: "one", RTTMicroseconds: 400, DialsTotal: 3},
		{ServerID: "two", RTTMicroseconds: 9000, DialsTotal: 4, Stale: true},
	}
	table, err := agentTable.ConvertToTable(t.Context(), a, &metav1.TableOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"Servers": int64(1), "RTT": "0.4ms", "Dials": int64(7)}
	for i, c := range table.ColumnDefinitions {
		if w, ok := want[c.Name]; ok && table.Rows[0].Cells[i] != w {
			t.Errorf("%s is %v, want %v", c.Name, table.Rows[0].Cells[i], w)
		}
	}
}

// cells is the row of an object, by the names of the columns.
func cells(t *testing.T, of rest.TableConvertor, o runtime.Object) map[string]string {
	t.Helper()
	table, err := of.ConvertToTable(t.Context(), o, &metav1.TableOptions{})
	if err != nil || len(table.Rows) != 1 || len(table.Rows[0].Cells) != len(table.ColumnDefinitions) {
		t.Fatalf("%+v, %v", table, err)
	}
	out := map[string]string{}
	for i, c := range table.ColumnDefinitions {
		out[c.Name] = fmt.Sprint(table.Rows[0].Cells[i])
	}
	return out
}

// TestServerTable: the table of servers shows what a server says of itself, when its certificate expires, and what is not known.
func TestServerTable(t *testing.T) {
	ago := func(d time.Duration) *metav1.Time { at := metav1.NewTime(time.Now().Add(-d)); return &at }
	full := func(expires *metav1.Time) *v1alpha1.TunnelServer {
		return &v1alpha1.TunnelServer{ObjectMeta: metav1.ObjectMeta{Name: "one", CreationTimestamp: *ago(75 * time.Hour)}, Status: v1alpha1.TunnelServerStatus{
			Host: "cp-1", Address: "unix:///1", Version: "v1", Mode: "grpc", Agents: 2, PendingDials: 3, OpenConnections: 4, CountMode: "Leases", Count: 3,
			CertificateExpirationTime: expires, ObservedTime: ago(5*time.Minute + 30*time.Second), Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionFalse}, {Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}},
		}}
	}
	row := func(expires string) map[string]string {
		return map[string]string{"Name": "one", "Host": "cp-1", "Reachable": "False", "Ready": "True", "Agents": "2", "Pending": "3", "Open": "4", "Cert-Expires": expires,
			"Age": "3d3h", "Observed": "5m30s", "Mode": "grpc", "Count": "Leases=3", "Version": "v1", "Address": "unix:///1"}
	}
	for name, c := range map[string]struct {
		server *v1alpha1.TunnelServer
		want   map[string]string
	}{
		"valid":       {full(ago(-364*24*time.Hour - 12*time.Hour)), row("364d")},
		"expired":     {full(ago(time.Second)), row("expired")},
		"no time yet": {full(nil), row("<unknown>")},
		"never answered": {&v1alpha1.TunnelServer{ObjectMeta: metav1.ObjectMeta{Name: "unknown-1"}, Status: v1alpha1.TunnelServerStatus{Address: "unix:///1"}},
			map[string]string{"Name": "unknown-1", "Host": "<none>", "Reachable": "Unknown", "Ready": "Unknown", "Agents": "0", "Pending": "0", "Open": "0", "Cert-Expires": "<unknown>",
				"Age": "<unknown>", "Observed": "<never>", "Mode": "<none>", "Count": "<unknown>", "Version": "<none>", "Address": "unix:///1"}},
	} {
		got := cells(t, serverTable, c.server)
		for i := range 60 { // seconds that pass meanwhile
			if got["Observed"] == fmt.Sprintf("5m%ds", 30+i) || got["Observed"] == fmt.Sprintf("6m%ds", i) {
				got["Observed"] = "5m30s"
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestConnectionTable: the table of connections shows those of agents, and those that the server itself carries.
func TestConnectionTable(t *testing.T) {
	c := &v1alpha1.TunnelConnection{ObjectMeta: metav1.ObjectMeta{Name: "one-1"}, Status: v1alpha1.TunnelConnectionStatus{
		ServerID: "one", AgentID: "a1", NodeName: "node-1", Destination: "192.0.2.1:80", BytesToAgent: 5, BytesFromAgent: 6, Since: metav1.NewTime(time.Now().Add(-75 * time.Hour))}}
	want := map[string]string{"Name": "one-1", "Destination": "192.0.2.1:80", "Agent": "a1", "Node": "node-1", "Sent": "5", "Received": "6", "Age": "3d3h", "Server": "one"}
	if diff := cmp.Diff(want, cells(t, connectionTable, c)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	c.Status.AgentID, c.Status.NodeName = "", ""
	want["Agent"], want["Node"] = "<server>", "<none>"
	if diff := cmp.Diff(want, cells(t, connectionTable, c)); diff != "" {
		t.Errorf("of the server, -want +got:\n%s", diff)
	}
}
