// SPDX-License-Identifier: Apache-2.0

package overview

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	tunnelv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/check/incluster"
	"github.com/fairlead-dev/fairlead/pkg/observe"
)

func gauge(m observe.Metrics, name string, value float64, labels ...*dto.LabelPair) {
	m[name] = &dto.MetricFamily{Name: &name, Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: &value}, Label: labels}}}
}

// snapshot is a cluster with a server, two agents and two replicas.
func snapshot() *observe.Snapshot {
	b := (&v1alpha1.Bundle{}).Defaulted()
	now := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	s := &observe.Snapshot{Taken: now, Context: "prod", Host: "https://10.0.0.1", Bundle: b, Names: incluster.NamesOf(b),
		Version: observe.Known(&version.Info{GitVersion: "v1.36.3"}), ServerMetrics: map[string]observe.Fact[observe.Metrics]{}, SchedulerMetrics: map[string]observe.Fact[observe.Metrics]{}}
	s.Nodes = observe.Known([]corev1.Node{{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}, {}})
	for role, names := range map[check.Role][]string{check.RoleServer: {"server"}, check.RoleAgent: {"a1", "a2"}, check.RoleScheduler: {"s1", "s2"}} {
		for _, n := range names {
			s.Programs.Value = append(s.Programs.Value, observe.Program{Program: check.Program{Role: role, Name: "Pod x/" + n, Ready: true}})
		}
	}
	server, leader := observe.Metrics{}, observe.Metrics{}
	gauge(server, observe.MetricBackends, 2)
	gauge(server, observe.MetricEstablished, 5)
	gauge(leader, observe.MetricLeader, 1)
	gauge(leader, observe.MetricQueue, 4, &dto.LabelPair{Name: ptr.To("queue"), Value: ptr.To("unschedulable")})
	s.ServerMetrics["Pod x/server"], s.SchedulerMetrics["Pod x/s1"] = observe.Known(server), observe.Known(leader)
	s.Leases = observe.Known([]coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "my-scheduler"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("s1_x"), RenewTime: &metav1.MicroTime{Time: now.Add(-1500 * time.Millisecond)}}}})
	s.TunnelState.Err = check.Skip("%v", observe.ErrNoTunnelAPI)
	s.Scheduled = observe.Known(observe.Scheduled{Pods: map[string]int{"my-scheduler": 30, "default-scheduler": 400}, More: true})
	s.Pending = observe.Known([]corev1.Pod{{Spec: corev1.PodSpec{SchedulerName: "my-scheduler"}}, {Spec: corev1.PodSpec{SchedulerName: "typo"}}})
	return s
}

func text(t *testing.T, o *Overview, wide bool) string {
	t.Helper()
	return styled(t, o, Style{Wide: wide})
}

func styled(t *testing.T, o *Overview, style Style) string {
	t.Helper()
	var out strings.Builder
	if err := o.Write(&out, style); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestScreen proves that a healthy cluster's screen has every number of the snapshot.
func TestScreen(t *testing.T) {
	o := Of(snapshot())
	if !o.Healthy {
		t.Errorf("not healthy: %v", o.Problems)
	}
	got := text(t, o, true)
	for _, want := range []string{"prod: ready, Kubernetes v1.36.3", "1/2 ready", "servers 1/1 ready, agents 2/2 ready", "2 links of agents, 5 connections", "replicas 2/2 ready, profiles my-scheduler",
		"leader s1_x, renewed 1.5 s ago", "queue: 4 unschedulable", "1 my-scheduler, 1 typo", "SERVER",
		"400 default-scheduler, 30 my-scheduler and more"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// TestTroubles proves that each trouble is a problem or unknown, and that the other parts are shown all the same.
func TestTroubles(t *testing.T) {
	for name, tc := range map[string]struct {
		do        func(*observe.Snapshot)
		want      string
		unhealthy bool
		state     State // of a cluster that is not healthy; Unhealthy if empty
	}{
		"no agents": {func(s *observe.Snapshot) {
			s.Programs.Value = append(observe.Of(s.Programs.Value, check.RoleServer), observe.Of(s.Programs.Value, check.RoleScheduler)...)
		},
			"no agent of the tunnel is ready", true, ""},
		"k3s": {func(s *observe.Snapshot) {
			s.Programs.Value, s.APIServerMetrics, s.Kubelets = nil, observe.Known(observe.Metrics{}), map[string]error{"a": nil}
			gauge(s.APIServerMetrics.Value, observe.MetricEgressStart, 7)
		}, "Tunnel        none", false, ""},
		"k3s whose kubelets do not answer": {func(s *observe.Snapshot) {
			s.Programs.Value, s.APIServerMetrics, s.Kubelets = nil, observe.Known(observe.Metrics{}), map[string]error{"a": errors.New("timeout")}
			gauge(s.APIServerMetrics.Value, observe.MetricEgressStart, 7)
		}, "the API server reaches no node", true, ""},
		"dead leader": {func(s *observe.Snapshot) { s.Leases.Value[0].Spec.RenewTime.Time = s.Taken.Add(-time.Minute) }, "has not renewed its Lease for 1m0s", true, ""},
		"no metrics": {func(s *observe.Snapshot) {
			s.ServerMetrics["Pod x/server"] = observe.Fact[observe.Metrics]{Err: errors.New("timeout")}
		}, "metrics of Pod x/server: timeout", false, ""},
		"forbidden": {func(s *observe.Snapshot) { s.Nodes = observe.Fact[[]corev1.Node]{Err: errors.New("forbidden")} }, "nodes: forbidden", true, StateUnknown},
		"no programs": {func(s *observe.Snapshot) {
			s.Programs = observe.Fact[[]observe.Program]{Err: errors.New("forbidden")}
		}, "Tunnel        unknown", true, StateUnknown},
		"no Leases": {func(s *observe.Snapshot) { s.Leases.Err = errors.New("forbidden") }, "prod: unknown", true, StateUnknown},
		"no programs and a problem": {func(s *observe.Snapshot) {
			s.Programs = observe.Fact[[]observe.Program]{Err: errors.New("forbidden")}
			s.ClientCert = observe.Known(&x509.Certificate{NotAfter: s.Taken.Add(-time.Hour)})
		}, "prod: not healthy", true, Unhealthy},
		"Leases do not matter": {func(s *observe.Snapshot) {
			s.Programs.Value, s.Leases.Err = nil, errors.New("forbidden")
		}, "no second scheduler", false, ""},
		"no Pods":       {func(s *observe.Snapshot) { s.Pending.Err = errors.New("forbidden") }, "Pods waiting  unknown", false, ""},
		"no API server": {func(s *observe.Snapshot) { s.Reach.Err = errors.New("connection refused") }, "connection refused", true, ""},
		"nothing there": {func(s *observe.Snapshot) { s.Programs.Value = nil }, "Tunnel        none", false, ""},
		"no second one": {func(s *observe.Snapshot) { s.Programs.Value = nil }, "no second scheduler", false, ""},
		"no Pod of the scheduler": {func(s *observe.Snapshot) {
			s.Programs.Value = slices.DeleteFunc(s.Programs.Value, func(p observe.Program) bool { return p.Role == check.RoleScheduler })
			s.Leases.Value = nil
			workloads(s, "exceeded quota: few")
		}, "no replica of the second scheduler is ready: exceeded quota: few", true, ""},
		"no Pod at all": {func(s *observe.Snapshot) {
			s.Programs.Value, s.Leases.Value = nil, nil
			workloads(s, "")
		}, "no agent of the tunnel is ready", true, ""},
		"workloads, and programs unknown": {func(s *observe.Snapshot) {
			s.Programs = observe.Fact[[]observe.Program]{Err: errors.New("forbidden")}
			workloads(s, "")
		}, "programs: forbidden", true, StateUnknown},
		"one agent of two": {func(s *observe.Snapshot) {
			for i := range s.Programs.Value {
				s.Programs.Value[i].Ready = s.Programs.Value[i].Name != "Pod x/a2"
			}
		}, "Notes:\n  1 of 2 agents of the tunnel are not ready\n", false, ""},
		"one Pod of two of an agent is missing": {func(s *observe.Snapshot) {
			workloads(s, "")
			s.DaemonSets.Value[0].Status.DesiredNumberScheduled = 3
		}, "1 of 3 agents of the tunnel are not ready", false, ""},
		"one replica of two": {func(s *observe.Snapshot) {
			for i := range s.Programs.Value {
				s.Programs.Value[i].Ready = s.Programs.Value[i].Name != "Pod x/s2"
			}
		}, "1 of 2 replicas of the second scheduler are not ready", false, ""},
		"broken server":  {func(s *observe.Snapshot) { s.Programs.Value = crash(s, check.RoleServer) }, "1 of 1 servers of the tunnel are not ready", true, ""},
		"broken replica": {func(s *observe.Snapshot) { s.Programs.Value = crash(s, check.RoleScheduler) }, "no replica of the second scheduler is ready", true, ""},
	} {
		s := snapshot()
		tc.do(s)
		o := Of(s)
		if got := text(t, o, false); !strings.Contains(got, tc.want) || o.Healthy == tc.unhealthy || !strings.Contains(got, "Pods waiting") {
			t.Errorf("%s: healthy %v, no %q in\n%s", name, o.Healthy, tc.want, got)
		}
		if want := tc.state; tc.unhealthy && o.State != cmp.Or(want, Unhealthy) || !tc.unhealthy && o.State != Ready {
			t.Errorf("%s: state %s", name, o.State)
		}
	}
}

// TestSlowSource proves that a Lease is as old as it was when it was read, however long other sources took.
func TestSlowSource(t *testing.T) {
	s := snapshot()
	s.Taken = s.Taken.Add(20 * time.Second)
	s.Leases.Read = s.Taken.Add(-20 * time.Second)
	if o := Of(s); !o.Healthy || *o.Scheduler.Renewed != 1.5 {
		t.Errorf("renewed %v s ago: %v", *o.Scheduler.Renewed, o.Problems)
	}
}

// TestUndecided: the reason for an unknown state is a fact that decides, also if another one that could not be read stands before it.
func TestUndecided(t *testing.T) {
	s := snapshot()
	s.Pending.Err = errors.New("pending is forbidden")
	for name := range s.ServerMetrics {
		s.ServerMetrics[name] = observe.Fact[observe.Metrics]{Err: errors.New("timeout")}
	}
	if o := Of(s); o.Undecided() != "" || o.State != Ready || len(o.Unknown) < 2 {
		t.Errorf("state %s, undecided %q of %q", o.State, o.Undecided(), o.Unknown)
	}
	s.Leases.Err = errors.New("forbidden")
	if o := Of(s); o.Undecided() != "Leases: forbidden" || o.State != StateUnknown || o.Unknown[0] == o.Undecided() {
		t.Errorf("state %s, undecided %q of %q", o.State, o.Undecided(), o.Unknown)
	}
}

// workloads adds the bundle's Deployment of the scheduler and DaemonSet of the agents, which should have two Pods each.
func workloads(s *observe.Snapshot, refusal string) {
	rendered, err := bundle.Render(s.Bundle)
	if err != nil {
		panic(err)
	}
	for _, o := range rendered.Objects {
		switch o := o.(type) {
		case *appsv1.Deployment:
			o.Spec.Replicas = ptr.To(int32(2))
			if refusal != "" {
				o.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: refusal}}
			}
			s.Deployments.Value = append(s.Deployments.Value, *o)
		case *appsv1.DaemonSet:
			o.Status.DesiredNumberScheduled = 2
			s.DaemonSets.Value = append(s.DaemonSets.Value, *o)
		}
	}
}

// crash makes all programs of a role not ready.
func crash(s *observe.Snapshot, role check.Role) []observe.Program {
	for i := range s.Programs.Value {
		if s.Programs.Value[i].Role == role {
			s.Programs.Value[i].Ready = false
		}
	}
	return s.Programs.Value
}

// TestTunnelAPI proves that agents and servers are shown from the tunnel's API where it is there, that a server that does not answer it is
// unknown and not a problem, and that nothing is said of an API that a cluster does not have.
func TestTunnelAPI(t *testing.T) {
	if got := text(t, Of(snapshot()), true); strings.Contains(got, "tunnel API") || strings.Contains(got, "Unknown") {
		t.Errorf("without the API:\n%s", got)
	}
	condition := func(kind string, status metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: kind, Status: status}}
	}
	s := snapshot()
	s.TunnelState = observe.Known(observe.TunnelState{
		Agents: []tunnelv1alpha1.TunnelAgent{
			{ObjectMeta: metav1.ObjectMeta{Name: "a1"}, Status: tunnelv1alpha1.TunnelAgentStatus{NodeName: "node-1", Conditions: condition(tunnelv1alpha1.ConditionConnected, metav1.ConditionTrue),
				Servers: []tunnelv1alpha1.AgentServer{{ServerID: "one", OpenConnections: 3}, {ServerID: "two", OpenConnections: 4}}}},
			{ObjectMeta: metav1.ObjectMeta{Name: "a2"}, Status: tunnelv1alpha1.TunnelAgentStatus{Conditions: condition(tunnelv1alpha1.ConditionConnected, metav1.ConditionFalse)}},
		},
		Servers: []tunnelv1alpha1.TunnelServer{
			{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Status: tunnelv1alpha1.TunnelServerStatus{Conditions: condition(tunnelv1alpha1.ConditionReachable, metav1.ConditionTrue)}},
			{ObjectMeta: metav1.ObjectMeta{Name: "lost"}, Status: tunnelv1alpha1.TunnelServerStatus{Conditions: condition(tunnelv1alpha1.ConditionReachable, metav1.ConditionFalse)}},
		},
	})
	o := Of(s)
	got := strings.Join(strings.Fields(text(t, o, true)), " ") // a long row has two lines
	for _, want := range []string{"tunnel API: 1/2 servers answer, agents connected: 1 (1 gone), connections: 7", "state of konnectivity-server lost", "one,two", "node-1"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if !o.Healthy {
		t.Errorf("not healthy: %v", o.Problems)
	}
	s.TunnelState = observe.Fact[observe.TunnelState]{Err: check.WithHint(errors.New("not available"), "look there")}
	if got := text(t, Of(s), false); !strings.Contains(got, "the tunnel's API: not available: look there") {
		t.Errorf("an API that does not answer:\n%s", got)
	}
}

// TestWidth proves that the screen of a cluster with many profiles and schedulers, and with long errors, fits into terminals of several widths, and
// loses no word. It has 80 columns where there is no terminal.
func TestWidth(t *testing.T) {
	s := snapshot()
	for i := range 12 {
		name := fmt.Sprintf("scheduler-of-team-%d", i)
		s.Scheduled.Value.Pods[name] = 1000 * i
		s.Pending.Value = append(s.Pending.Value, corev1.Pod{Spec: corev1.PodSpec{SchedulerName: name}})
	}
	s.Bundle.Scheduler.Profiles = nil
	for i := range 6 {
		s.Bundle.Scheduler.Profiles = append(s.Bundle.Scheduler.Profiles, schedulerv1.KubeSchedulerProfile{SchedulerName: ptr.To(fmt.Sprintf("profile-of-team-%d", i))})
	}
	s.TunnelState = observe.Known(observe.TunnelState{Agents: []tunnelv1alpha1.TunnelAgent{{}}})
	plain, lines := text(t, Of(s), false), map[int]int{}
	for _, want := range []string{"11000 scheduler-of-team-11", "1 scheduler-of-team-7", "profile-of-team-5"} {
		if !strings.Contains(plain, want) {
			t.Errorf("no %q in\n%s", want, plain)
		}
	}
	s.ServerMetrics["Pod x/server"] = observe.Fact[observe.Metrics]{Err: errors.New(strings.Repeat("the proxy of the API server says that it has no route ", 5))}
	plain = text(t, Of(s), false)
	for _, width := range []int{40, 80, 200} {
		got := styled(t, Of(s), Style{Width: width})
		lines[width] = strings.Count(got, "\n")
		for line := range strings.Lines(got) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
				t.Errorf("%d columns in a terminal of %d: %s", n, width, line)
			}
		}
		if got, want := strings.Fields(got), strings.Fields(plain); !slices.Equal(got, want) {
			t.Errorf("in a terminal of %d columns: got %q, want %q", width, got, want)
		}
	}
	if lines[40] <= lines[80] || lines[80] <= lines[200] {
		t.Errorf("lines by width: %v", lines)
	}
}
