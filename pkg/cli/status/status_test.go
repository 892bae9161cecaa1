// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

type status struct{ cluster.Summary }

func (status) Problem() string            { return "" }
func (status) WriteTable(io.Writer) error { return nil }

func TestListTable(t *testing.T) {
	var out, errOut bytes.Buffer
	if err := listTable(&out, &errOut, nil); err != nil || out.Len() != 0 || !strings.Contains(errOut.String(), "fairlead up") {
		t.Errorf("no clusters: %q, %q, %v", out.String(), errOut.String(), err)
	}
	running := status{cluster.Summary{
		Name: "dev", Provider: "kind", KubernetesVersion: "v1.36.3", Nodes: 3, Created: time.Now().Add(-time.Hour), Running: true, RSSBytes: 300 << 20,
	}}
	broken := status{cluster.Summary{Name: "half", Provider: "embedded", Context: "fairlead-half"}}
	if err := listTable(&out, &errOut, []cluster.Status{running, broken}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) < 3 || !strings.HasPrefix(lines[1], "dev") || !strings.Contains(lines[1], "kind") || !strings.Contains(lines[1], "unhealthy") || !strings.Contains(lines[1], "300 MiB") || !strings.Contains(lines[2], "incomplete") {
		t.Errorf("got\n%s", out.String())
	}
}
