// SPDX-License-Identifier: Apache-2.0

// Package overview sums up a Snapshot on one screen: Of, then Overview.Write.
package overview

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
)

// Overview is what "fairlead status" shows.
type Overview struct {
	Cluster string `json:"cluster"`
	Server  string `json:"server"`
	Version string `json:"version,omitempty"`
	// State sums it up. Healthy is true for Ready alone.
	State   State `json:"state"`
	Healthy bool  `json:"healthy"`
	// Nodes is absent if they could not be read.
	Nodes  *Ratio `json:"nodes,omitempty"`
	Tunnel Tunnel `json:"tunnel"`
	// Scheduler is the second one.
	Scheduler    Scheduler     `json:"scheduler"`
	Certificates []Certificate `json:"certificates,omitempty"`
	// Problems say in one line each what is wrong, Notes what needs attention while all works, Unknown what could not be read.
	Problems []string `json:"problems,omitempty"`
	Notes    []string `json:"notes,omitempty"`
	Unknown  []string `json:"unknown,omitempty"`
	// undecided is the first text in Unknown that could be a problem.
	undecided string
}

// State is that of the whole cluster.
type State string

// The states.
const (
	// Ready means that the API server answers, and that all parts that there are work.
	Ready State = "ready"
	// Unhealthy means that there are problems.
	Unhealthy State = "not healthy"
	// StateUnknown means that there may be problems: something that decides could not be read.
	StateUnknown State = "unknown"
)

// Ratio is how many of all are ready.
type Ratio struct {
	Ready int `json:"ready"`
	All   int `json:"all"`
}

func (r Ratio) String() string { return fmt.Sprintf("%d/%d", r.Ready, r.All) }

// Tunnel is the Konnectivity tunnel.
type Tunnel struct {
	// Installed means that a program of it or its workload, or kube-apiserver's part, is there; absent if that could not be read.
	Installed *bool `json:"installed,omitempty"`
	Servers   Ratio `json:"servers"`
	Agents    Ratio `json:"agents"`
	// Each has the servers one by one.
	Each []Server `json:"each,omitempty"`
	// Egress counts the dials of the API server that answered, since it started.
	Egress *Dials `json:"egress,omitempty"`
	// API is what the tunnel's extension API server shows; absent without it.
	API *TunnelAPI `json:"api,omitempty"`
}

// TunnelAPI is what the tunnel's extension API server shows.
type TunnelAPI struct {
	// Agents are connected if a server has a link to them, Servers ready if they answer.
	Agents  Ratio `json:"agents"`
	Servers Ratio `json:"servers"`
	// Connections are those that agents carry now.
	Connections int64 `json:"connections"`
	// EachAgent has the agents one by one.
	EachAgent []Agent `json:"eachAgent,omitempty"`
}

// Agent is one agent.
type Agent struct {
	Name      string `json:"name"`
	Node      string `json:"node,omitempty"`
	Connected bool   `json:"connected"`
	// Servers are those to which it is connected.
	Servers     []string `json:"servers,omitempty"`
	Connections int64    `json:"connections"`
}

// Server is one konnectivity-server. Numbers are absent if its metrics could not be read.
type Server struct {
	Name        string `json:"name"`
	Ready       bool   `json:"ready"`
	Restarts    int    `json:"restarts"`
	Agents      *int   `json:"agents,omitempty"`
	Connections *int   `json:"connections,omitempty"`
	Dials       *Dials `json:"dials,omitempty"`
}

// Dials are connections that were opened since the start of a program.
type Dials struct {
	All    int `json:"all"`
	Failed int `json:"failed"`
	// P50 and P99 are estimates in milliseconds; absent without dials.
	P50 *float64 `json:"p50ms,omitempty"`
	P99 *float64 `json:"p99ms,omitempty"`
}

// Scheduler is the second scheduler.
type Scheduler struct {
	// Installed means that a replica or its Deployment is there; absent if that could not be read.
	Installed *bool `json:"installed,omitempty"`
	Replicas  Ratio `json:"replicas"`
	// Leader holds the Lease; Renewed is how many seconds ago it renewed it.
	Leader   string   `json:"leader,omitempty"`
	Renewed  *float64 `json:"renewedSeconds,omitempty"`
	Profiles []string `json:"profiles,omitempty"`
	// Queue are Pods in the leader's queues, by queue.
	Queue map[string]int `json:"queue,omitempty"`
	// Pods are all Pods that have not ended, by the scheduler that they name; PodsAtLeast means that there are more than could be read.
	Pods        map[string]int `json:"pods,omitempty"`
	PodsAtLeast bool           `json:"podsAtLeast,omitempty"`
	// Pending are those of them that are on no node; absent if they could not be read.
	Pending map[string]int `json:"pending,omitempty"`
}

// Certificate is one with its expiry.
type Certificate struct {
	Use     string    `json:"use"`
	Subject string    `json:"subject"`
	Expires time.Time `json:"expires"`
	Days    int       `json:"days"`
}

// Of sums up a snapshot.
func Of(s *observe.Snapshot) *Overview {
	o := &Overview{Cluster: s.Context, Server: s.Host}
	if s.Version.Err == nil && s.Version.Value != nil {
		o.Version = s.Version.Value.GitVersion
	}
	if err := s.Reach.Err; err != nil {
		o.Problems = append(o.Problems, err.Error())
	}
	if s.Nodes.Err == nil {
		o.Nodes = &Ratio{}
		for i := range s.Nodes.Value {
			o.Nodes.count(observe.NodeReady(&s.Nodes.Value[i]))
		}
	}
	o.tunnel(s)
	o.second(s)
	o.certificates(s)
	if s.Reach.Err == nil {
		o.decides("nodes", s.Nodes.Err)
		o.decides("programs", s.Programs.Err)
		if s.Programs.Err != nil || ptr.Deref(o.Scheduler.Installed, false) {
			o.decides("Leases", s.Leases.Err)
		}
		o.unknown("version", s.Version.Err)
		o.unknown("Pods by scheduler", s.Scheduled.Err)
		o.unknown("pending Pods", s.Pending.Err)
		o.unknown("the API server's metrics", s.APIServerMetrics.Err)
		o.unknown("the tunnel's API", s.TunnelState.Err)
	}
	switch {
	case len(o.Problems) > 0:
		o.State = Unhealthy
	case o.undecided != "":
		o.State = StateUnknown
	default:
		o.State, o.Healthy = Ready, true
	}
	return o
}

// decides is unknown for what could be a problem.
func (o *Overview) decides(what string, err error) {
	before := len(o.Unknown)
	o.unknown(what, err)
	if o.undecided == "" && len(o.Unknown) > before {
		o.undecided = o.Unknown[before]
	}
}

// Undecided is the first fact that decides and could not be read, in one line. It is "" if there is none.
func (o *Overview) Undecided() string { return o.undecided }

func (r *Ratio) count(ready bool) {
	r.All++
	if ready {
		r.Ready++
	}
}

func (o *Overview) unknown(what string, err error) {
	if err == nil || check.IsSkip(err) {
		return
	}
	text := what + ": " + err.Error()
	if hint := check.HintOf(err); hint != "" {
		text += ": " + hint
	}
	o.Unknown = append(o.Unknown, text)
}

func (o *Overview) problem(format string, args ...any) {
	o.Problems = append(o.Problems, fmt.Sprintf(format, args...))
}

func (o *Overview) note(format string, args ...any) {
	o.Notes = append(o.Notes, fmt.Sprintf(format, args...))
}

// planned adds to a ratio the Pods that workloads should have and that do not exist. It reports whether there are such workloads, and why the
// API server refused their last Pod.
func planned(s *observe.Snapshot, role check.Role, r *Ratio) (found bool, refusal string) {
	desired := 0
	for _, w := range s.Workloads(role) {
		found, desired, refusal = true, desired+int(w.Desired), cmp.Or(refusal, w.Refusal)
	}
	if s.Programs.Err == nil {
		r.All = max(r.All, desired)
	}
	if refusal != "" {
		refusal = ": " + refusal
	}
	return found, refusal
}

func (o *Overview) tunnel(s *observe.Snapshot) {
	t := &o.Tunnel
	servers, agents, err := s.Tunnel()
	for _, p := range agents {
		t.Agents.count(p.Ready)
	}
	for _, p := range servers {
		t.Servers.count(p.Ready)
		t.Each = append(t.Each, o.server(s, p))
	}
	t.Egress = egress(s)
	o.tunnelAPI(s)
	var server, agent bool
	var noServer, noAgent string
	if !check.IsSkip(err) {
		server, noServer = planned(s, check.RoleServer, &t.Servers)
		agent, noAgent = planned(s, check.RoleAgent, &t.Agents)
	}
	installed := err == nil || server || agent || t.API != nil || s.Programs.Err != nil && t.Egress != nil
	if installed || check.IsSkip(err) {
		t.Installed = &installed
	}
	if s.Reach.Err == nil && s.Programs.Err == nil {
		o.decides("tunnel", err)
	}
	o.tunnelProblems(noServer, noAgent, err == nil && !reachesWithout(s, t.Agents))
}

// tunnelProblems are those of servers and agents, with the reason why the API server refused Pods. Agents are needed if nothing else reaches nodes.
func (o *Overview) tunnelProblems(noServer, noAgent string, needed bool) {
	t := &o.Tunnel
	if t.Servers.Ready < t.Servers.All {
		o.problem("%d of %d servers of the tunnel are not ready%s", t.Servers.All-t.Servers.Ready, t.Servers.All, noServer)
	}
	if needed && t.Agents.Ready == 0 {
		o.problem("no agent of the tunnel is ready: the API server reaches no node%s", noAgent)
	} else if t.Agents.Ready < t.Agents.All {
		o.note("%d of %d agents of the tunnel are not ready%s", t.Agents.All-t.Agents.Ready, t.Agents.All, noAgent)
	}
}

// reachesWithout reports whether kubelets answer although no agent is visible: agents are no Pods then.
func reachesWithout(s *observe.Snapshot, agents Ratio) bool {
	answer, _ := s.KubeletsAnswer()
	return answer && agents.All == 0
}

// egress is nil if the API server uses no tunnel, or if its metrics could not be read.
func egress(s *observe.Snapshot) *Dials {
	m, err := s.APIServerMetrics.Get()
	all, ok := m.Sum(observe.MetricEgressStart, nil)
	if err != nil || !ok {
		return nil
	}
	failed, _ := m.Sum(observe.MetricEgressFailed, nil)
	out := &Dials{All: int(all), Failed: int(failed)}
	out.times(m, "apiserver_egress_dialer_dial_duration_seconds")
	return out
}

func (o *Overview) tunnelAPI(s *observe.Snapshot) {
	state, err := s.TunnelState.Get()
	if err != nil || len(state.Agents)+len(state.Servers) == 0 {
		return
	}
	api := &TunnelAPI{}
	for i := range state.Servers {
		reachable := observe.Reachable(&state.Servers[i])
		if api.Servers.count(reachable); !reachable {
			o.Unknown = append(o.Unknown, "state of konnectivity-server "+state.Servers[i].Name+": the tunnel's API server gets no answer from it")
		}
	}
	for i := range state.Agents {
		a := &state.Agents[i]
		one := Agent{Name: a.Name, Node: a.Status.NodeName, Connected: observe.Connected(a)}
		for _, server := range a.Status.Servers {
			one.Servers = append(one.Servers, server.ServerID)
			one.Connections += server.OpenConnections
		}
		api.Agents.count(one.Connected)
		api.Connections += one.Connections
		api.EachAgent = append(api.EachAgent, one)
	}
	o.Tunnel.API = api
}

func (o *Overview) server(s *observe.Snapshot, p observe.Program) Server {
	out := Server{Name: p.Name, Ready: p.Ready, Restarts: p.Restarts}
	fact, read := s.ServerMetrics[p.Name]
	if !read || fact.Err != nil {
		o.unknown("metrics of "+p.Name, fact.Err)
		return out
	}
	m := fact.Value
	if n, ok := observe.ConnectedAgents(m); ok {
		out.Agents = &n
	}
	out.Connections = whole(m, observe.MetricEstablished)
	all, _ := m.Sum(observe.MetricDialSeconds, nil)
	failed, _ := m.Sum(observe.MetricDialFailures, nil)
	out.Dials = &Dials{All: int(all + failed), Failed: int(failed)}
	out.Dials.times(m, observe.MetricDialSeconds)
	return out
}

func whole(m observe.Metrics, name string) *int {
	if n, ok := m.Sum(name, nil); ok {
		return ptr.To(int(n))
	}
	return nil
}

func (d *Dials) times(m observe.Metrics, name string) {
	for q, to := range map[float64]**float64{0.5: &d.P50, 0.99: &d.P99} {
		if v := m.Quantile(name, q); !math.IsNaN(v) {
			*to = ptr.To(math.Round(v*100000) / 100)
		}
	}
}

func (o *Overview) second(s *observe.Snapshot) {
	out := &o.Scheduler
	for _, p := range observe.Of(s.Programs.Value, check.RoleScheduler) {
		out.Replicas.count(p.Ready)
		m := s.SchedulerMetrics[p.Name].Value
		if leads, _ := m.Sum(observe.MetricLeader, nil); leads > 0 {
			out.Queue = map[string]int{}
			for queue, n := range m.Values(observe.MetricQueue, "queue") {
				out.Queue[queue] = int(n)
			}
		}
	}
	seen := out.Replicas.All > 0
	workload, refusal := planned(s, check.RoleScheduler, &out.Replicas)
	installed := seen || workload
	if installed || s.Programs.Err == nil {
		out.Installed = &installed
	}
	if installed {
		out.Profiles = scheduler.ProfileNames(s.Bundle)
		o.lease(s)
		switch {
		case out.Replicas.Ready == 0 && (seen || s.Programs.Err == nil):
			o.problem("no replica of the second scheduler is ready%s", refusal)
		case out.Replicas.Ready < out.Replicas.All:
			o.note("%d of %d replicas of the second scheduler are not ready%s", out.Replicas.All-out.Replicas.Ready, out.Replicas.All, refusal)
		}
	}
	if s.Scheduled.Err == nil {
		out.Pods, out.PodsAtLeast = s.Scheduled.Value.Pods, s.Scheduled.Value.More
	}
	if s.Pending.Err == nil {
		out.Pending = map[string]int{}
		for _, p := range s.Pending.Value {
			out.Pending[p.Spec.SchedulerName]++
		}
	}
}

func (o *Overview) lease(s *observe.Snapshot) {
	if !ptr.Deref(s.Bundle.Scheduler.LeaderElection.LeaderElect, true) || s.Leases.Err != nil {
		return
	}
	for _, l := range s.Leases.Value {
		if l.Namespace != s.Names.Lease.Namespace || l.Name != s.Names.Lease.Name || l.Spec.RenewTime == nil {
			continue
		}
		o.Scheduler.Leader = ptr.Deref(l.Spec.HolderIdentity, "")
		age := observe.ReadAt(s, s.Leases).Sub(l.Spec.RenewTime.Time)
		o.Scheduler.Renewed = ptr.To(math.Round(max(0, age.Seconds())*10) / 10)
		if limit := time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 15)) * time.Second; age > limit+5*time.Second {
			o.problem("the leader of the second scheduler has not renewed its Lease for %s", age.Round(time.Second))
		}
	}
	if o.Scheduler.Leader == "" {
		o.problem("no replica of the second scheduler leads")
	}
}

func (o *Overview) certificates(s *observe.Snapshot) {
	add := func(use string, certs ...*x509.Certificate) {
		for _, c := range certs {
			if c == nil {
				continue
			}
			days := int(math.Floor(c.NotAfter.Sub(s.Taken).Hours() / 24))
			o.Certificates = append(o.Certificates, Certificate{Use: use, Subject: c.Subject.CommonName, Expires: c.NotAfter.UTC(), Days: days})
			if days < 0 {
				o.problem("%s: certificate %q has expired", use, c.Subject.CommonName)
			}
		}
	}
	if len(s.Reach.Value.Certificates) > 0 {
		add("API server", s.Reach.Value.Certificates[0])
	}
	add("this kubeconfig", s.ClientCert.Value)
	add("cluster CA", s.ClusterCAs.Value...)
	for _, p := range observe.Of(s.Programs.Value, check.RoleServer) {
		if chain := s.Shown[p.Name].Value; len(chain) > 0 {
			add("server to agents", chain[0])
		}
	}
	slices.SortStableFunc(o.Certificates, func(a, b Certificate) int { return a.Expires.Compare(b.Expires) })
}
