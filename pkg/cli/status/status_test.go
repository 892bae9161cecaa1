package status

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/cluster/embedded"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

func sample() embedded.Status {
	return embedded.Status{
		State: embedded.State{Version: 1, Name: "dev", KubernetesVersion: "v1.36.3", Nodes: 1, Created: time.Now().Add(-time.Hour)},
		Dir:   "/state/dev", Context: "fairlead-dev", Server: "https://127.0.0.1:6443",
		Running: true, RSSBytes: 300 << 20, SupervisorRSSBytes: 20 << 20, Supervisor: 7,
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
	if err := table(&out, sample()); err != nil {
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
	err := unhealthy(s)
	if !errors.Is(err, ErrUnhealthy) || !strings.Contains(err.Error(), "kwok is backing off") || !strings.Contains(err.Error(), "kwok.log") {
		t.Errorf("unhealthy = %v, want the first process that is not ready and its log", err)
	}
	s.Processes = nil
	if err := unhealthy(s); !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("without an answer: %v", err)
	}
	s.Running = false
	if err := unhealthy(s); !strings.Contains(err.Error(), "stopped") || health(s) != "stopped" {
		t.Errorf("stopped: %v, %s", err, health(s))
	}
	s.Healthy = true
	if health(s) != "ready" {
		t.Errorf("healthy: %s", health(s))
	}
}

func TestListTable(t *testing.T) {
	var out, errOut bytes.Buffer
	if err := listTable(&out, &errOut, nil); err != nil || out.Len() != 0 || !strings.Contains(errOut.String(), "fairlead up") {
		t.Errorf("no clusters: %q, %q, %v", out.String(), errOut.String(), err)
	}
	broken := embedded.Status{State: embedded.State{Name: "half"}, Context: "fairlead-half"}
	if err := listTable(&out, &errOut, []embedded.Status{sample(), broken}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) < 3 || !strings.HasPrefix(lines[1], "dev") || !strings.Contains(lines[1], "unhealthy") || !strings.Contains(lines[2], "incomplete") {
		t.Errorf("got\n%s", out.String())
	}
}
