// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
