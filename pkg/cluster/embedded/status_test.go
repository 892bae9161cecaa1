// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

func sample() Status {
	return Status{
		Summary: cluster.Summary{
			Name: "dev", Provider: cluster.Embedded, KubernetesVersion: "v1.36.3", Nodes: 1, Created: time.Now().Add(-time.Hour),
			Dir: "/state/dev", Context: "fairlead-dev", Server: "https://127.0.0.1:6443", Running: true, RSSBytes: 300 << 20,
		},
		State:              State{Record: cluster.Record{Name: "dev", Phase: cluster.PhaseReady}, HostIP: "192.0.2.1"},
		SupervisorRSSBytes: 20 << 20, Supervisor: 7,
		Processes: []process.Status{
			{Name: "etcd", State: process.Running, Ready: true, PID: 8, RSSBytes: 50 << 20, Since: time.Now().Add(-time.Minute)},
			{Name: "kwok", State: process.BackingOff, Restarts: 3, Reason: "ended: exit status 1", Since: time.Now(), LogFile: "/state/dev/logs/kwok.log"},
			{Name: "agent", State: process.Running, PID: 9, Since: time.Now()},
			{Name: "late", State: process.Waiting, Reason: "waiting for kwok", Since: time.Now()},
		},
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	if err := sample().WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Cluster dev: unhealthy, Kubernetes v1.36.3, 1 node\n", "/state/dev/logs", "300 MiB in 3 processes",
		"etcd        8    ready", "backing off (ended: exit status 1)", "running, not ready", "waiting (waiting for kwok)",
		"supervisor  7    ready", "20 MiB",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, out.String())
		}
	}
}

func TestHealth(t *testing.T) {
	s := sample()
	if problem := s.Problem(); !strings.Contains(problem, "kwok is backing off") || !strings.Contains(problem, "kwok.log") {
		t.Errorf("%s, want the first process that is not ready and its log", problem)
	}
	s.Processes = nil
	if problem := s.Problem(); !strings.Contains(problem, "does not answer") {
		t.Errorf("without an answer: %s", problem)
	}
	s.Running = false
	if problem := s.Problem(); !strings.Contains(problem, "stopped") || s.Health() != "stopped" {
		t.Errorf("stopped: %s, %s", problem, s.Health())
	}
	s.Healthy = true
	if s.Health() != "ready" || s.Problem() != "" {
		t.Errorf("healthy: %s, %s", s.Health(), s.Problem())
	}
}

// Scripts read the status as one object.
func TestStatusJSON(t *testing.T) {
	data, err := json.Marshal(sample())
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Name, Provider, KubernetesVersion, Phase, HostIP, Server string
		Nodes                                                    int
		Running                                                  bool
		Processes                                                []process.Status
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.Name != "dev" || got.Provider != "embedded" || got.KubernetesVersion != "v1.36.3" || got.Phase != "ready" ||
		got.HostIP != "192.0.2.1" || got.Nodes != 1 || !got.Running || len(got.Processes) != 4 {
		t.Errorf("got %s", data)
	}
}
