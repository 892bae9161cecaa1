// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

func sampleStatus() Status {
	return Status{
		Summary: cluster.Summary{
			Name: "dev", Provider: cluster.Kind, KubernetesVersion: "v1.36.3", Nodes: 2, Dir: "/state/dev", Context: "fairlead-dev",
			Server: "https://127.0.0.1:20000", Running: true, Healthy: true,
		},
		State: State{
			Record: cluster.Record{Name: "dev", Phase: cluster.PhaseReady}, ControlPlanes: 1, Workers: 1, Image: "node:v1", Runtime: "docker", Port: 20000,
		},
		Containers: []NodeStatus{{"fairlead-dev-control-plane", "control-plane", stateReady}, {"fairlead-dev-worker", "worker", stateReady}},
		Parts:      []part{{"konnectivity-server", "StaticPod", 1, 1}, {"konnectivity-agent", "DaemonSet", 1, 1}},
	}
}

// The first problem is named, with what to do about it.
func TestProblem(t *testing.T) {
	if s := sampleStatus(); s.Problem() != "" {
		t.Errorf("healthy: %s", s.Problem())
	}
	for name, c := range map[string]struct {
		change func(*Status)
		says   []string
	}{
		"half-made":   {func(s *Status) { s.Phase = cluster.PhaseCreating }, []string{"half-made", "fairlead down --name dev"}},
		"stopped":     {func(s *Status) { s.Running = false }, []string{"is stopped", "fairlead up --name dev"}},
		"a node gone": {func(s *Status) { s.Containers = s.Containers[:1] }, []string{"1 of 2 nodes", "fairlead down --name dev"}},
		"a node gone beside a load balancer": {func(s *Status) {
			s.ControlPlanes = 3
			s.Containers = append(s.Containers, NodeStatus{"fairlead-dev-control-plane2", "control-plane", stateReady}, NodeStatus{"fairlead-dev-external-load-balancer", roleLoadBalancer, stateReady})
		}, []string{"3 of 4 nodes"}},
		"node stopped": {func(s *Status) { s.Containers[1].State = stateStopped }, []string{"fairlead-dev-worker is stopped", "fairlead up --name dev"}},
		"not ready":    {func(s *Status) { s.Containers[1].State = stateRunning }, []string{"fairlead-dev-worker is not ready", "describe node fairlead-dev-worker"}},
		"no answer":    {func(s *Status) { s.Unreachable = "refused" }, []string{"does not answer", "refused"}},
		"agent away":   {func(s *Status) { s.Parts[1].Ready = 0 }, []string{"0 of 1 konnectivity-agent ready", "get pods"}},
		"never counted": {func(s *Status) { s.Parts[1] = part{Name: "konnectivity-agent"} }, []string{
			"0 of 0 konnectivity-agent"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := sampleStatus()
			c.change(&s)
			for _, text := range c.says {
				if !strings.Contains(s.Problem(), text) {
					t.Errorf("the problem lacks %q: %q", text, s.Problem())
				}
			}
		})
	}
}

// A cluster whose container runtime is down is not lost: it is listed, and the
// reason is reported.
func TestStatusWithoutRuntime(t *testing.T) {
	fakeRuntime(t, `echo "Cannot connect to the Docker daemon. Is the docker daemon running?" >&2; exit 1`)
	p := storedCluster(t, "docker")
	s, err := NewProvider(filepath.Dir(p.Dir), Settings{}).Status(t.Context(), "dev")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Summarize(); got.Healthy || got.Running || got.Health() != "stopped" {
		t.Errorf("got %+v", got)
	}
	if problem := s.Problem(); !strings.Contains(problem, ErrRuntimeDown.Error()) || !strings.Contains(problem, "systemctl start docker") {
		t.Errorf("problem: %s", problem)
	}
}

func TestTableAndJSON(t *testing.T) {
	s := sampleStatus()
	var out bytes.Buffer
	if err := s.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Cluster dev: ready, Kubernetes v1.36.3, 1 control plane node and 1 worker in docker\n", "node:v1", "fairlead-dev-worker", "1/1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, out.String())
		}
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Name, Provider, KubernetesVersion, Phase, Image, Runtime string
		Nodes, ControlPlanes                                     int
		Containers                                               []NodeStatus
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.Name != "dev" || got.Provider != "kind" || got.KubernetesVersion != "v1.36.3" || got.Phase != "ready" || got.Image != "node:v1" ||
		got.Nodes != 2 || got.ControlPlanes != 1 || len(got.Containers) != 2 {
		t.Errorf("got %s", data)
	}
}
