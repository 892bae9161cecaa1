package incluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

var _ check.Parts = &Parts{}

// Parts stops and starts the second scheduler and the agents through the API server.
type Parts struct {
	client    kubernetes.Interface
	namespace string
	// replicas are the Deployments' sizes before they were scaled to zero.
	replicas map[string]int32
	// agentDeployment is true when the agents turned out to be a Deployment.
	agentDeployment bool
}

// NewParts returns the Parts of the cluster behind client.
func NewParts(client kubernetes.Interface) *Parts {
	return &Parts{client: client, namespace: Namespace, replicas: map[string]int32{}}
}

// pollEvery is how often pods are looked at while they come and go.
const pollEvery = 250 * time.Millisecond

// StopScheduler scales the Deployment to zero and waits until its pods are gone.
func (p *Parts) StopScheduler(ctx context.Context) error {
	return p.scaleDown(ctx, SchedulerDeployment)
}

// StartScheduler scales the Deployment to what it was and waits until it is ready.
func (p *Parts) StartScheduler(ctx context.Context) error {
	return p.scaleUp(ctx, SchedulerDeployment)
}

// KillLeader deletes the pod that the holder's identity, <pod>_<uuid>, names, without grace. The kubelet then kills its processes within moments;
// a scheduler that uses those to release its Lease makes the takeover faster, not wrong.
func (p *Parts) KillLeader(ctx context.Context, holder string) error {
	pod, _, _ := strings.Cut(holder, "_")
	err := p.client.CoreV1().Pods(p.namespace).Delete(ctx, pod, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the holder %q of the Lease names no pod in %s: %w", holder, p.namespace, err)
	}
	return err
}

// OwnsIdentity says whether a holder's identity names a pod of the second scheduler.
func (p *Parts) OwnsIdentity(ctx context.Context, holder string) (bool, error) {
	pods, err := p.client.CoreV1().Pods(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: schedulerSelector})
	if err != nil {
		return false, err
	}
	name, _, _ := strings.Cut(holder, "_")
	for _, pod := range pods.Items {
		if pod.Name == name {
			return true, nil
		}
	}
	return false, nil
}

// stopSelector is what no node has; a DaemonSet that asks for it runs nowhere.
const stopSelector = "fairlead.dev/verify-stopped"

// StopAgents makes the DaemonSet ask for nodes that do not exist (it has no scale) and waits until its pods are gone.
func (p *Parts) StopAgents(ctx context.Context) error {
	err := p.patchAgents(ctx, fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{%q:"true"}}}}}`, stopSelector))
	if apierrors.IsNotFound(err) {
		p.agentDeployment = true
		return p.scaleDown(ctx, AgentName)
	}
	if err != nil {
		return err
	}
	ds, err := p.client.AppsV1().DaemonSets(p.namespace).Get(ctx, AgentName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return p.waitGone(ctx, ds.Spec.Selector)
}

// StartAgents takes the patch back and waits until an agent is ready on every node that should have one.
func (p *Parts) StartAgents(ctx context.Context) error {
	if p.agentDeployment {
		return p.scaleUp(ctx, AgentName)
	}
	if err := p.patchAgents(ctx, fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{%q:null}}}}}`, stopSelector)); err != nil {
		return err
	}
	return poll(ctx, func(ctx context.Context) error {
		ds, err := p.client.AppsV1().DaemonSets(p.namespace).Get(ctx, AgentName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		st := ds.Status
		if st.ObservedGeneration < ds.Generation || st.DesiredNumberScheduled == 0 || st.NumberReady < st.DesiredNumberScheduled {
			return fmt.Errorf("%d of %d agents are ready", st.NumberReady, st.DesiredNumberScheduled)
		}
		return nil
	})
}

func (p *Parts) patchAgents(ctx context.Context, patch string) error {
	_, err := p.client.AppsV1().DaemonSets(p.namespace).Patch(ctx, AgentName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (p *Parts) scaleDown(ctx context.Context, name string) error {
	deployments := p.client.AppsV1().Deployments(p.namespace)
	d, err := deployments.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if n := ptr.Deref(d.Spec.Replicas, 1); n > 0 {
		p.replicas[name] = n
	}
	if err := p.scale(ctx, name, 0); err != nil {
		return err
	}
	return p.waitGone(ctx, d.Spec.Selector)
}

// scaleUp does nothing for a Deployment that scaleDown never touched.
func (p *Parts) scaleUp(ctx context.Context, name string) error {
	n, ok := p.replicas[name]
	if !ok {
		return nil
	}
	if err := p.scale(ctx, name, n); err != nil {
		return err
	}
	return poll(ctx, func(ctx context.Context) error {
		d, err := p.client.AppsV1().Deployments(p.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if d.Status.ReadyReplicas < n {
			return fmt.Errorf("%d of %d replicas of %s are ready", d.Status.ReadyReplicas, n, name)
		}
		return nil
	})
}

func (p *Parts) scale(ctx context.Context, name string, n int32) error {
	patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, n)
	_, err := p.client.AppsV1().Deployments(p.namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (p *Parts) waitGone(ctx context.Context, selector *metav1.LabelSelector) error {
	opts := metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(selector)}
	return poll(ctx, func(ctx context.Context) error {
		pods, err := p.client.CoreV1().Pods(p.namespace).List(ctx, opts)
		if err != nil {
			return err
		}
		if len(pods.Items) > 0 {
			return fmt.Errorf("%d pods are still there, among them %s", len(pods.Items), pods.Items[0].Name)
		}
		return nil
	})
}

// poll repeats probe until it returns nil, and returns its last error when ctx ends first.
func poll(ctx context.Context, probe func(ctx context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		if err := probe(ctx); err != nil {
			if ctx.Err() == nil {
				last = err
			}
			return false, nil
		}
		return true, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("%w (%w)", last, err)
	}
	return err
}
