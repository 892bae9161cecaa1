// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// arrangement is a way in which kube-scheduler and Fairlead's scheduler share ten nodes, each of which has room for four
// of the pods.
type arrangement struct {
	name string
	// partitioned gives five nodes to each.
	partitioned bool
	// preemption begins with full nodes: kube-scheduler's pods have a high priority and evict others, Fairlead's wait for
	// free resources.
	preemption bool
	// nominations is whether ForeignNominations is enabled.
	nominations bool
	// alone leaves out Fairlead's pods, to show what kube-scheduler does alone.
	alone bool
}

func arrangements() []arrangement {
	return []arrangement{
		{name: "partitioned", partitioned: true, nominations: true},
		{name: "shared", nominations: true},
		{name: "shared, without ForeignNominations"},
		{name: "kube-scheduler preempts, and has the nodes for itself", preemption: true, nominations: true, alone: true},
		{name: "shared, kube-scheduler preempts", preemption: true, nominations: true},
		{name: "shared, kube-scheduler preempts, without ForeignNominations", preemption: true},
	}
}

const (
	togetherNodes   = 10
	togetherNodeCPU = 16
	togetherPodCPU  = 4
	// togetherPods each scheduler has; all of them together fill the nodes.
	togetherPods = 20
)

// togetherResult is one round.
type togetherResult struct {
	When        time.Time `json:"when"`
	Machine     string    `json:"machine"`
	Build       string    `json:"build"`
	Arrangement string    `json:"arrangement"`
	// DoubleBooked is the number of nodes whose pods request more than the node has.
	DoubleBooked int `json:"doubleBooked"`
	// Bound pods of each scheduler.
	Bound  int `json:"bound"`
	Theirs int `json:"boundByKubeScheduler"`
	// Evicted is the number of evicted pods. As many as kube-scheduler has pods of high priority are necessary.
	Evicted int `json:"evicted"`
}

func togetherFile(o options) string { return filepath.Join(filepath.Dir(o.results), "together.jsonl") }

func measureTogether(ctx context.Context, o options) error {
	programs, err := find(ctx, o.programs)
	if err != nil {
		return err
	}
	for _, a := range arrangements() {
		if o.only != "" && !strings.Contains(a.name, o.only) {
			continue
		}
		if err := a.rounds(ctx, programs, o); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
	}
	return nil
}

// rounds share one control plane and two schedulers.
func (a arrangement) rounds(ctx context.Context, programs map[string]string, o options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cp, err := startControlPlane(ctx, programs)
	if err != nil {
		return err
	}
	defer cp.stop()
	if err := a.makeNodes(ctx, cp); err != nil {
		return fmt.Errorf("create nodes: %w", err)
	}
	if err := makePriorities(ctx, cp.client); err != nil {
		return fmt.Errorf("create priority classes: %w", err)
	}
	watching, stopWatching := context.WithCancel(ctx) // before the API server is stopped
	defer stopWatching()
	kubelets, err := startKubelets(watching, cp.client)
	if err != nil {
		return err
	}
	theirs, err := startScheduler(ctx, cp, programs["kube-scheduler"], defaultConfig)
	if err != nil {
		return err
	}
	defer theirs.stop()
	own, err := startScheduler(ctx, cp, programs["fairlead-scheduler"], a.config)
	if err != nil {
		return err
	}
	defer own.stop()
	if err := a.waitUntilBothBind(ctx, cp); err != nil {
		return fmt.Errorf("%w\n%s\n%s", err, tail(theirs.log), tail(own.log))
	}
	for round := range o.together {
		r := &togetherResult{When: time.Now().UTC().Truncate(time.Second), Machine: machine(), Build: own.build, Arrangement: a.name}
		if err := a.round(ctx, cp, kubelets, r); err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
		if err := appendResult(togetherFile(o), r); err != nil {
			return err
		}
		fmt.Printf("%-60s round %2d: %d nodes double-booked, %d and %d pods bound, %d evicted\n", a.name, round+1, r.DoubleBooked, r.Theirs, r.Bound, r.Evicted)
	}
	return nil
}

// round creates the pods of both schedulers at the same time and observes the result.
func (a arrangement) round(ctx context.Context, cp *controlPlane, kubelets *kubelets, r *togetherResult) error {
	before := kubelets.evicted()
	if a.preemption {
		if err := a.fillWithVictims(ctx, cp.client); err != nil {
			return err
		}
	}
	if err := a.makePods(ctx, cp.client); err != nil {
		return err
	}
	if err := a.settle(ctx, cp, r); err != nil {
		return err
	}
	r.Evicted = kubelets.evicted() - before
	return clean(ctx, cp.client)
}

// settle waits until all pods are bound that must be, and a while longer for those that wait for room.
func (a arrangement) settle(ctx context.Context, cp *controlPlane, r *togetherResult) error {
	enough := func() error {
		if err := r.count(ctx, cp); err != nil {
			return err
		}
		if r.Theirs < togetherPods || (!a.preemption && r.Bound < togetherPods) {
			return fmt.Errorf("%d and %d of %d pods of each scheduler are bound", r.Theirs, r.Bound, togetherPods)
		}
		return nil
	}
	if err := eventually(ctx, enough); err != nil {
		return err
	}
	if !a.preemption {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(3 * time.Second):
	}
	return r.count(ctx, cp)
}

// count looks at all pods.
func (r *togetherResult) count(ctx context.Context, cp *controlPlane) error {
	list, err := cp.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	r.Bound, r.Theirs, r.DoubleBooked = 0, 0, 0
	asked := map[string]int64{}
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Spec.NodeName == "" {
			continue
		}
		asked[pod.Spec.NodeName] += pod.Spec.Containers[0].Resources.Requests.Cpu().Value()
		switch {
		case pod.Labels["app"] == victims:
		case pod.Spec.SchedulerName == corev1.DefaultSchedulerName:
			r.Theirs++
		default:
			r.Bound++
		}
	}
	for _, cpus := range asked {
		if cpus > togetherNodeCPU {
			r.DoubleBooked++
		}
	}
	return nil
}

// config is what the bundle renders for the arrangement: the profile that places pods most like kube-scheduler does.
func (a arrangement) config(kubeconfig string) ([]byte, error) {
	b := &v1alpha1.Bundle{}
	b.Scheduler.BuiltInProfiles.Spread = &v1alpha1.SpreadProfile{}
	b.Scheduler.Plugins.ForeignNominations.Enabled = &a.nominations
	if a.partitioned {
		b.Scheduler.Partition = &v1alpha1.Partition{NodeLabels: pool, Taint: &poolTaint}
	}
	return render(b, kubeconfig)
}

// togetherTable has a line for each arrangement, of its latest build on the latest machine.
func togetherTable(all []togetherResult) string {
	var b strings.Builder
	last := all[len(all)-1]
	fmt.Fprintf(&b, "On %s, %s UTC:\n\n", last.Machine, last.When.Format("2006-01-02 15:04"))
	b.WriteString("| arrangement | rounds | rounds with a double-booked node | double-booked nodes in all | pods evicted in a round | Fairlead's pods bound in a round |\n|---|--:|--:|--:|--:|--:|\n")
	for _, a := range arrangements() {
		var rounds []togetherResult
		for _, r := range all {
			if r.Arrangement == a.name && r.Machine == last.Machine {
				rounds = append(rounds, r)
			}
		}
		if len(rounds) == 0 {
			continue
		}
		latest := rounds[len(rounds)-1].Build
		rounds = slices.DeleteFunc(rounds, func(r togetherResult) bool { return r.Build != latest })
		with, nodes := 0, 0
		var evicted, bound []float64
		for _, r := range rounds {
			if nodes += r.DoubleBooked; r.DoubleBooked > 0 {
				with++
			}
			evicted, bound = append(evicted, float64(r.Evicted)), append(bound, float64(r.Bound))
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %.0f–%.0f | %.0f–%.0f |\n", a.name, len(rounds), with, nodes,
			slices.Min(evicted), slices.Max(evicted), slices.Min(bound), slices.Max(bound))
	}
	return b.String()
}
