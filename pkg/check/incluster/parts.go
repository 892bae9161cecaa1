// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/check"
)

var _ check.Parts = &Parts{}

// Parts stops and starts the second scheduler and the agents through the API server. The information needed to restore them is stored in the
// objects themselves, so it survives this process.
type Parts struct {
	client kubernetes.Interface
	names  Names
	// ready is how many pods of a Deployment or DaemonSet were ready before it was stopped. More need not come back: one may have been broken.
	ready map[string]int32
}

// NewParts returns the Parts of the cluster behind client.
func NewParts(client kubernetes.Interface, names Names) *Parts {
	return &Parts{client: client, names: names, ready: map[string]int32{}}
}

// pollEvery is how often pods are looked at while they come and go.
const pollEvery = 250 * time.Millisecond

// StopScheduler scales the Deployment to zero and waits until its pods are gone.
func (p *Parts) StopScheduler(ctx context.Context) error {
	d, err := p.schedulerDeployment(ctx)
	if err != nil {
		return err
	}
	return p.scaleDown(ctx, d)
}

// StartScheduler scales the Deployment to what it was and waits until as many replicas are ready as were.
func (p *Parts) StartScheduler(ctx context.Context) error {
	return p.scaleUp(ctx, p.names.Scheduler)
}

// schedulerDeployment is a Skip when there is none: pods of other kinds cannot be stopped from here.
func (p *Parts) schedulerDeployment(ctx context.Context) (*appsv1.Deployment, error) {
	d, err := p.deployments().Get(ctx, p.names.Scheduler, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, check.Skip("there is no Deployment %s/%s: a second scheduler that runs as static Pods or outside the cluster cannot be stopped through the API server (if it has another name, set its bundle with -f)",
			p.names.Namespace, p.names.Scheduler)
	}
	return d, err
}

// KillLeader deletes the pod that the holder's identity, <host name>_<uuid>, names, without grace. The kubelet then kills its processes within
// moments; a scheduler that uses those to release its Lease makes the takeover faster, not wrong.
func (p *Parts) KillLeader(ctx context.Context, holder string) error {
	d, err := p.schedulerDeployment(ctx)
	if err != nil {
		return err
	}
	pod, _, _ := strings.Cut(holder, "_")
	if d.Spec.Template.Spec.HostNetwork {
		if pod, err = p.podOnNode(ctx, pod, d.Spec.Template.Labels); err != nil {
			return err
		}
	}
	err = p.pods().Delete(ctx, pod, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the holder %q of the Lease names no pod in %s: %w", holder, p.names.Namespace, err)
	}
	return err
}

// podOnNode finds a replica on the host network, which has its node's host name.
func (p *Parts) podOnNode(ctx context.Context, host string, labels map[string]string) (string, error) {
	pods, err := p.pods().List(ctx, metav1.ListOptions{LabelSelector: selectorOf(labels)})
	if err != nil {
		return "", err
	}
	for _, pod := range pods.Items {
		if pod.Spec.NodeName == host && !ended(&pod) {
			return pod.Name, nil
		}
	}
	return "", check.Skip("the second scheduler is on the host network, and the leader calls itself %s, but no node with a replica has that name: the leader's pod is unknown", host)
}

// stopSelector is a node label that no node has. A DaemonSet that selects it runs nowhere.
const stopSelector = "fairlead.dev/verify-stopped"

// StopAgents makes the DaemonSet ask for nodes that do not exist (it has no scale) and waits until its pods are gone.
func (p *Parts) StopAgents(ctx context.Context) error {
	if err := p.withoutPools(ctx); err != nil {
		return err
	}
	ds, err := p.daemonSets().Get(ctx, p.names.Agents, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return p.stopAgentDeployment(ctx)
	}
	if err != nil {
		return err
	}
	if !stopped(ds) {
		p.ready[dsKey(p.names.Agents)] = ds.Status.NumberReady
		if err := p.patchAgents(ctx, fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{%q:"true"}}}}}`, stopSelector)); err != nil {
			return err
		}
	}
	return p.waitGone(ctx, ds.Spec.Template)
}

// withoutPools is a Skip if agents of TunnelPools run, which would keep the tunnel up. The operator would start them again.
func (p *Parts) withoutPools(ctx context.Context) error {
	pods, err := p.pods().List(ctx, metav1.ListOptions{LabelSelector: konnectivity.PoolLabel})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; !ended(pod) {
			return check.Skip("agents of TunnelPool %s run as well (Pod %s), and the operator would start them again", pod.Labels[konnectivity.PoolLabel], pod.Name)
		}
	}
	return nil
}

func (p *Parts) stopAgentDeployment(ctx context.Context) error {
	d, err := p.deployments().Get(ctx, p.names.Agents, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return check.Skip("there is neither a DaemonSet nor a Deployment %s/%s: agents of other kinds cannot be stopped through the API server", p.names.Namespace, p.names.Agents)
	}
	if err != nil {
		return err
	}
	return p.scaleDown(ctx, d)
}

// StartAgents takes the patch back and waits until as many agents are ready as were before.
func (p *Parts) StartAgents(ctx context.Context) error {
	ds, err := p.daemonSets().Get(ctx, p.names.Agents, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return p.scaleUp(ctx, p.names.Agents)
	}
	if err != nil {
		return err
	}
	want, ours := p.ready[dsKey(p.names.Agents)]
	switch {
	case stopped(ds):
		if err := p.patchAgents(ctx, fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{%q:null}}}}}`, stopSelector)); err != nil {
			return err
		}
	case !ours:
		return nil
	}
	if !ours {
		want = 1
	}
	return poll(ctx, func(ctx context.Context) error { return p.agentsReady(ctx, want) })
}

func (p *Parts) agentsReady(ctx context.Context, want int32) error {
	ds, err := p.daemonSets().Get(ctx, p.names.Agents, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if st := ds.Status; st.ObservedGeneration < ds.Generation || st.NumberReady < want {
		return fmt.Errorf("%d agents are ready, want %d", st.NumberReady, want)
	}
	return nil
}

func stopped(ds *appsv1.DaemonSet) bool {
	_, ok := ds.Spec.Template.Spec.NodeSelector[stopSelector]
	return ok
}

// dsKey keeps a DaemonSet apart from a Deployment of the same name.
func dsKey(name string) string { return "daemonset/" + name }

func (p *Parts) patchAgents(ctx context.Context, patch string) error {
	_, err := p.daemonSets().Patch(ctx, p.names.Agents, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// ended says whether a pod has terminated. Evicted pods stay in the API until they are deleted.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
