// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

func (p *plan) secondScheduler() bool { return ptr.Deref(p.bundle.Scheduler.Enabled, true) }

// nodesReady requires every planned node to be Ready, and sets the Pod range of
// nodes that have none.
func (p *plan) nodesReady(ctx context.Context, client kubernetes.Interface) (string, error) {
	if _, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		return "", waitError("waiting for the API server")
	}
	// Approve early, so that certificates exist when the agents start.
	if err := p.approveKubelets(ctx, client); err != nil {
		return "", err
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for _, want := range p.nodes() {
		i := slices.IndexFunc(list.Items, func(n corev1.Node) bool { return n.Name == want.name })
		if i < 0 {
			return "", waitError("waiting for " + want.name)
		}
		n := &list.Items[i]
		if p.state.OwnPodNetwork && n.Spec.PodCIDR == "" {
			if err := setPodCIDR(ctx, client, want); err != nil {
				return "", err
			}
		}
		if !p.nodeReady(n) {
			return "", waitError("waiting for " + want.name)
		}
	}
	return progress.Count(len(p.nodes()), "node"), nil
}

func (p *plan) nodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && p.fresh(n.Name, c.LastHeartbeatTime.Time)
	})
}

// setPodCIDR records the node's actual Pod range in its spec.podCIDR, where other
// programs expect it.
func setPodCIDR(ctx context.Context, client kubernetes.Interface, n node) error {
	cidr := n.podCIDR.String()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"podCIDR": cidr, "podCIDRs": []string{cidr}}})
	if err != nil {
		return err
	}
	if _, err := client.CoreV1().Nodes().Patch(ctx, n.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("setting the Pod range of node %s: %w", n.name, err)
	}
	return nil
}

// part is a workload of the bundle: how many of its Pods are ready, and how many
// should be.
type part struct {
	Name  string `json:"name"`
	Form  string `json:"form"`
	Ready int    `json:"ready"`
	Want  int    `json:"want"`
}

func (w part) ok() bool { return w.Want > 0 && w.Ready >= w.Want }

func (w part) String() string { return fmt.Sprintf("%d of %d %s ready", w.Ready, w.Want, w.Name) }

// servers returns the Konnectivity servers, one for each control plane node.
func (p *plan) servers(ctx context.Context, client kubernetes.Interface) (part, error) {
	return p.count(ctx, client, konnectivity.Server(p.bundle), p.bundle.Konnectivity.Server.Form, p.state.ControlPlanes)
}

// agents returns the Konnectivity agents.
func (p *plan) agents(ctx context.Context, client kubernetes.Interface) (part, error) {
	c, form := konnectivity.Agent(p.bundle), p.bundle.Konnectivity.Agent.Form
	if form == v1alpha1.FormDeployment {
		return p.count(ctx, client, c, form, int(c.Replicas))
	}
	ds, err := client.AppsV1().DaemonSets(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
	if err != nil {
		return part{Name: c.Name, Form: string(form)}, err
	}
	want := 0
	if ds.Status.ObservedGeneration == ds.Generation {
		want = int(ds.Status.DesiredNumberScheduled)
	}
	return p.count(ctx, client, c, form, want)
}

// schedulers returns the replicas of the second scheduler.
func (p *plan) schedulers(ctx context.Context, client kubernetes.Interface) (part, error) {
	c := scheduler.Component(p.bundle)
	return p.count(ctx, client, c, v1alpha1.FormDeployment, int(c.Replicas))
}

// count counts the ready Pods of a component.
func (p *plan) count(ctx context.Context, client kubernetes.Interface, c component.Component, form v1alpha1.Form, want int) (part, error) {
	w := part{Name: c.Name, Form: string(form), Want: want}
	pods, err := client.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: konnectivity.PodsOf(metav1.LabelSelector{MatchLabels: c.Selector}, c.PodLabels)})
	if err != nil {
		return w, err
	}
	for i := range pods.Items {
		if p.podReady(&pods.Items[i]) {
			w.Ready++
		}
	}
	return w, nil
}

func (p *plan) podReady(pod *corev1.Pod) bool {
	stale := slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Running == nil || !p.fresh(pod.Spec.NodeName, c.State.Running.StartedAt.Time)
	})
	return !stale && pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// agentsReady requires servers and agents to be ready: a server is ready when an
// agent is connected to it, and an agent when it is connected to a server.
func (p *plan) agentsReady(ctx context.Context, client kubernetes.Interface) (string, error) {
	result, err := p.settled(ctx, client, p.agents, p.servers)
	var wait waitError
	if errors.As(err, &wait) {
		err = wait + waitError(p.apart(ctx))
	}
	return result, err
}

// schedulerReady also requires a leader, which readiness does not show.
func (p *plan) schedulerReady(ctx context.Context, client kubernetes.Interface) (string, error) {
	result, err := p.settled(ctx, client, p.schedulers)
	if err != nil {
		return "", err
	}
	e := p.bundle.Scheduler.LeaderElection
	if !ptr.Deref(e.LeaderElect, true) {
		return result, nil
	}
	lease, err := client.CoordinationV1().Leases(e.LeaseNamespace).Get(ctx, e.LeaseName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	renewed := ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time
	for _, since := range p.restarted {
		if renewed.Before(since) {
			return "", waitError("waiting for a leader")
		}
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
		return "", waitError("waiting for a leader")
	}
	return result, nil
}

func (p *plan) settled(ctx context.Context, client kubernetes.Interface, look ...func(context.Context, kubernetes.Interface) (part, error)) (string, error) {
	var words []string
	for _, f := range look {
		w, err := f(ctx, client)
		if err != nil {
			return "", err
		}
		if !w.ok() {
			return "", waitError(w.String() + p.whyNot(ctx, client, w.Name))
		}
		words = append(words, fmt.Sprintf("%d %s", w.Ready, w.Name))
	}
	return strings.Join(words, ", "), nil
}

// whyNot quotes the message of a workload's first waiting container, such as that
// its image cannot be pulled.
func (p *plan) whyNot(ctx context.Context, client kubernetes.Interface, workload string) string {
	pods, err := client.CoreV1().Pods(p.bundle.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return ""
	}
	for _, pod := range pods.Items {
		if !strings.HasPrefix(pod.Name, workload) || pod.Labels[konnectivity.PoolLabel] != "" {
			continue
		}
		for _, c := range pod.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && w.Message != "" {
				return fmt.Sprintf(": Pod %s: %s: %s", pod.Name, w.Reason, w.Message)
			}
		}
	}
	return ""
}
