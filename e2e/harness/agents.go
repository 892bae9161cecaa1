// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/check/incluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

// Agents are all Konnectivity agents of a cluster.
type Agents interface {
	// Stop returns once none runs, Start once all are ready, Restart once each has
	// been replaced by a new one, as a rollout does.
	Stop(ctx context.Context) error
	Start(ctx context.Context) error
	Restart(ctx context.Context) error
}

// Agents of the cluster: a DaemonSet's Pods, or processes of this machine.
func (c *Cluster) Agents() Agents {
	if c.Simulated() {
		return c.Processes("konnectivity-agent-")
	}
	return podAgents{c}
}

// Processes are those of a simulated cluster whose names begin so.
func (c *Cluster) Processes(prefix string) Agents {
	return processes{c.supervisor(), prefix}
}

// Kill sends SIGKILL to a process of a simulated cluster, whose supervisor starts it again.
func (c *Cluster) Kill(ctx context.Context, process string) error {
	return c.supervisor().Kill(ctx, process)
}

// supervisor is what runs the processes of a simulated cluster.
func (c *Cluster) supervisor() *process.Client {
	return process.NewClient(filepath.Join(c.StateDir(c.Name), "run/supervisor.sock"))
}

type processes struct {
	supervisor *process.Client
	prefix     string
}

func (a processes) names(ctx context.Context) ([]string, error) {
	report, err := a.supervisor.Status(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range report.Processes {
		if strings.HasPrefix(p.Name, a.prefix) {
			names = append(names, p.Name)
		}
	}
	return names, nil
}

func (a processes) Stop(ctx context.Context) error {
	return a.each(ctx, a.supervisor.Stop)
}

func (a processes) Start(ctx context.Context) error { return a.each(ctx, a.start) }

// start returns once the process is ready.
func (a processes) start(ctx context.Context, name string) error {
	if err := a.supervisor.Start(ctx, name); err != nil {
		return err
	}
	return Wait(ctx, 30*time.Second, name+" to be ready", func(ctx context.Context) error {
		report, err := a.supervisor.Status(ctx)
		if err != nil {
			return err
		}
		if p, ok := report.Find(name); !ok || !p.Ready {
			return fmt.Errorf("it is %+v", p)
		}
		return nil
	})
}

// Restart replaces one after another.
func (a processes) Restart(ctx context.Context) error {
	return a.each(ctx, func(ctx context.Context, name string) error {
		if err := a.supervisor.Stop(ctx, name); err != nil {
			return err
		}
		return a.start(ctx, name)
	})
}

func (a processes) each(ctx context.Context, do func(context.Context, string) error) error {
	names, err := a.names(ctx)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("the cluster has no process %s", a.prefix)
	}
	for _, name := range names {
		if err := do(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

type podAgents struct{ c *Cluster }

func (a podAgents) parts() (*incluster.Parts, incluster.Names, error) {
	b, err := bundle.Load(nil)
	if err != nil {
		return nil, incluster.Names{}, err
	}
	names := incluster.NamesOf(b)
	return incluster.NewParts(a.c.Client, names), names, nil
}

func (a podAgents) Stop(ctx context.Context) error {
	parts, _, err := a.parts()
	if err != nil {
		return err
	}
	return parts.StopAgents(ctx)
}

func (a podAgents) Start(ctx context.Context) error {
	parts, names, err := a.parts()
	if err != nil {
		return err
	}
	if err := parts.StartAgents(ctx); err != nil {
		return err
	}
	return a.rolledOut(ctx, names)
}

// Restart does what kubectl rollout restart does.
func (a podAgents) Restart(ctx context.Context) error {
	_, names, err := a.parts()
	if err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`, time.Now().Format(time.RFC3339Nano))
	_, err = a.c.Client.AppsV1().DaemonSets(names.Namespace).Patch(ctx, names.Agents, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	return a.rolledOut(ctx, names)
}

// rolledOut waits until there are new, ready agents and none besides.
func (a podAgents) rolledOut(ctx context.Context, names incluster.Names) error {
	return Wait(ctx, 3*time.Minute, "the agents to be rolled out", func(ctx context.Context) error {
		ds, err := a.c.Client.AppsV1().DaemonSets(names.Namespace).Get(ctx, names.Agents, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s := ds.Status
		want := s.DesiredNumberScheduled
		if s.ObservedGeneration < ds.Generation || want == 0 || slices.ContainsFunc([]int32{s.UpdatedNumberScheduled, s.NumberAvailable, s.CurrentNumberScheduled}, func(n int32) bool { return n != want }) {
			return fmt.Errorf("the DaemonSet is %+v", s)
		}
		pods, err := a.c.Client.CoreV1().Pods(names.Namespace).List(ctx, metav1.ListOptions{LabelSelector: konnectivity.PodsOf(*ds.Spec.Selector, ds.Spec.Template.Labels)})
		if err != nil {
			return err
		}
		if len(pods.Items) != int(want) {
			return fmt.Errorf("%d Pods are there, want %d", len(pods.Items), want)
		}
		return nil
	})
}
