// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// NodeStatus is one container of a cluster.
type NodeStatus struct {
	Name string `json:"name"`
	// Role is control-plane, worker or load-balancer.
	Role string `json:"role"`
	// State is stopped, running, or ready if its kubelet is.
	State string `json:"state"`
}

// Status is the result of Provider.Status. If the embedded types have a field of
// the same name, JSON has the Summary's.
type Status struct {
	cluster.Summary
	State
	Containers []NodeStatus `json:"containers,omitempty"`
	Parts      []part       `json:"parts,omitempty"`
	// Unreachable says why the container runtime or the API server could not be
	// queried.
	Unreachable string `json:"unreachable,omitempty"`
}

var _ cluster.Status = Status{}

// statusLimit bounds the queries to the API server.
const statusLimit = 5 * time.Second

// States of a container.
const (
	stateStopped = "stopped"
	stateRunning = "running, not ready"
	stateReady   = "ready"
)

// Status implements cluster.Provider.
func (p *Provider) Status(ctx context.Context, name string) (cluster.Status, error) {
	pl, err := p.load(ctx, name)
	if err != nil {
		return nil, err
	}
	s := Status{State: pl.state, Summary: pl.state.Summary(pl.Home, cluster.Kind)}
	s.Server = pl.state.serverURL()
	list, err := pl.containers(ctx)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		s.Unreachable = err.Error()
	}
	for _, c := range list {
		n := NodeStatus{Name: c.name, Role: pl.role(c.name), State: stateStopped}
		if c.running {
			s.Running, n.State = true, stateRunning
		}
		if c.running && n.Role == roleLoadBalancer {
			n.State = stateReady // it has no kubelet to query
		}
		s.Containers = append(s.Containers, n)
	}
	if s.Running {
		pl.ask(ctx, &s)
	}
	s.Healthy = s.Problem() == ""
	return s, nil
}

// containers queries the runtime that the cluster was created with.
func (p *plan) containers(ctx context.Context) ([]container, error) {
	rt, err := p.runtime(ctx)
	if err != nil {
		return nil, err
	}
	list, err := rt.containers(ctx, rt.kind(newLogger(progress.Silent)), p.Name)
	if err != nil {
		// If the runtime is down, ping has a better explanation.
		return nil, cmp.Or(rt.ping(ctx), err)
	}
	return list, nil
}

const roleLoadBalancer = "load-balancer"

func (p *plan) role(name string) string {
	for _, n := range p.nodes() {
		if n.name == name && n.controlPlane {
			return "control-plane"
		}
		if n.name == name {
			return "worker"
		}
	}
	return roleLoadBalancer
}

// ask adds what only the API server knows.
func (p *plan) ask(ctx context.Context, s *Status) {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	if err := p.askAPI(ctx, s); err != nil {
		s.Unreachable = err.Error()
	}
}

func (p *plan) askAPI(ctx context.Context, s *Status) error {
	config, err := p.adminConfig()
	if err != nil {
		return err
	}
	config.Timeout = statusLimit
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range s.Containers {
		c := &s.Containers[i]
		if slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == c.Name && p.nodeReady(&n) }) && c.State == stateRunning {
			c.State = stateReady
		}
	}
	var look []func(context.Context, kubernetes.Interface) (part, error)
	if p.tunnel() {
		look = append(look, p.servers, p.agents)
	}
	if p.secondScheduler() {
		look = append(look, p.schedulers)
	}
	for _, f := range look {
		w, err := f(ctx, client)
		if err != nil {
			return err
		}
		s.Parts = append(s.Parts, w)
	}
	return nil
}

// count returns the number of nodes, or of load balancers.
func (s Status) count(loadBalancer bool) int {
	n := 0
	for _, c := range s.Containers {
		if (c.Role == roleLoadBalancer) == loadBalancer {
			n++
		}
	}
	return n
}

// Problem implements cluster.Status.
func (s Status) Problem() string {
	name := s.Summary.Name
	switch {
	case s.Phase != cluster.PhaseReady:
		return fmt.Sprintf("cluster %q is half-made: run \"fairlead down --name %s\" and then \"up\" again, unless an \"up\" is at work", name, name)
	case s.Unreachable != "" && len(s.Containers) == 0:
		return s.Unreachable
	case s.count(false) < s.ControlPlanes+s.Workers:
		return fmt.Sprintf("cluster %q has %d of %d nodes: run \"fairlead down --name %s\" and then \"up\" again", name, s.count(false), s.ControlPlanes+s.Workers, name)
	case s.ControlPlanes > 1 && s.count(true) == 0:
		return fmt.Sprintf("cluster %q has lost its load balancer, which leads to the API servers: run \"fairlead down --name %s\" and then \"up\" again", name, name)
	case !s.Running:
		return fmt.Sprintf("cluster %q is stopped: start it with \"fairlead up --name %s\"", name, name)
	case s.Unreachable != "":
		return "the API server does not answer: " + s.Unreachable
	}
	for _, c := range s.Containers {
		if c.State == stateStopped {
			return fmt.Sprintf("%s is stopped: start it with \"fairlead up --name %s\"", c.Name, name)
		}
		if c.State != stateReady {
			return fmt.Sprintf("%s is not ready: \"kubectl --context %s describe node %s\" says why", c.Name, s.Context, c.Name)
		}
	}
	for _, w := range s.Parts {
		if !w.ok() {
			return fmt.Sprintf("%s: \"kubectl --context %s get pods -A\" shows them", w, s.Context)
		}
	}
	return ""
}

// WriteTable implements cluster.Status.
func (s Status) WriteTable(out io.Writer) error {
	_, _ = fmt.Fprintf(out, "Cluster %s: %s, Kubernetes %s, %s and %s in %s\nContext: %s\nServer:  %s\nImage:   %s\nFiles:   %s\n",
		s.Summary.Name, s.Health(), s.Summary.KubernetesVersion, progress.Count(s.ControlPlanes, "control plane node"), progress.Count(s.Workers, "worker"), s.Runtime,
		s.Context, s.Server, s.Image, s.Dir)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(s.Containers) > 0 {
		_, _ = fmt.Fprintln(w, "\nCONTAINER\tROLE\tSTATE")
	}
	for _, c := range s.Containers {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", c.Name, c.Role, c.State)
	}
	if len(s.Parts) > 0 {
		_, _ = fmt.Fprintln(w, "\nPART\tFORM\tREADY")
	}
	for _, p := range s.Parts {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%d/%d\n", p.Name, p.Form, p.Ready, p.Want)
	}
	return w.Flush()
}
