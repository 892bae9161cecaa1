// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
)

// AnnotationReplicas is on a Deployment that was scaled to zero and says how many replicas it had.
const AnnotationReplicas = "fairlead.dev/verify-replicas"

func (p *Parts) deployments() appsclient.DeploymentInterface {
	return p.client.AppsV1().Deployments(p.names.Namespace)
}

func (p *Parts) daemonSets() appsclient.DaemonSetInterface {
	return p.client.AppsV1().DaemonSets(p.names.Namespace)
}

func (p *Parts) pods() coreclient.PodInterface { return p.client.CoreV1().Pods(p.names.Namespace) }

// scaleDown records the replica count in the same patch that scales the Deployment to zero, so the cluster keeps it even if this process is
// killed. It keeps the annotation of an earlier run, except on a Deployment that runs, where the annotation is out of date.
func (p *Parts) scaleDown(ctx context.Context, d *appsv1.Deployment) error {
	if n := ptr.Deref(d.Spec.Replicas, 1); n > 0 {
		p.ready[d.Name] = d.Status.ReadyReplicas
		if err := p.scale(ctx, d.Name, 0, strconv.Quote(strconv.Itoa(int(n)))); err != nil {
			return err
		}
	}
	return p.waitGone(ctx, d.Spec.Template)
}

// scaleUp does nothing for a Deployment that scaleDown never touched.
func (p *Parts) scaleUp(ctx context.Context, name string) error {
	want, ours := p.ready[name]
	d, err := p.deployments().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !ours {
		return nil
	}
	if err != nil {
		return err
	}
	n, noted, err := notedReplicas(d)
	switch {
	case err != nil:
		return err
	case noted:
		// The Deployment was scaled up in the meantime: keep that size.
		if now := ptr.Deref(d.Spec.Replicas, 1); now > 0 {
			n = now
		}
		if err := p.scale(ctx, name, n, "null"); err != nil {
			return err
		}
	case !ours:
		return p.disown(ctx, name) // an earlier run may have been killed before it did that
	default:
		n = ptr.Deref(d.Spec.Replicas, 1)
	}
	if !ours {
		want = 1
	}
	disowned := p.disown(ctx, name)
	return errors.Join(poll(ctx, func(ctx context.Context) error { return p.replicasReady(ctx, name, min(n, want)) }), disowned)
}

func (p *Parts) replicasReady(ctx context.Context, name string, want int32) error {
	d, err := p.deployments().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if d.Status.ObservedGeneration < d.Generation || d.Status.ReadyReplicas < want {
		return fmt.Errorf("%d of %d replicas of %s are ready", d.Status.ReadyReplicas, want, name)
	}
	return nil
}

// notedReplicas reads what scaleDown wrote.
func notedReplicas(d *appsv1.Deployment) (n int32, noted bool, err error) {
	text, noted := d.Annotations[AnnotationReplicas]
	if !noted {
		return 0, false, nil
	}
	parsed, err := strconv.ParseInt(text, 10, 32)
	if err != nil || parsed < 1 {
		return 0, true, fmt.Errorf("Deployment %s/%s has annotation %s: %q, which is not a number of replicas: scale it by hand and remove the annotation", d.Namespace, d.Name, AnnotationReplicas, text)
	}
	return int32(parsed), true, nil
}

// scale sets the size and the annotation, a JSON value, at once.
func (p *Parts) scale(ctx context.Context, name string, n int32, annotation string) error {
	_, err := p.deployments().Patch(ctx, name, types.MergePatchType, []byte(scalePatch(n, annotation)), metav1.PatchOptions{FieldManager: fieldManager})
	return err
}

// fieldManager owns the number of replicas while a check keeps a Deployment at zero.
const fieldManager = "fairlead-verify"

// disown gives the ownership of fields up. Otherwise the next "fairlead install" with another number of replicas would report a conflict.
func (p *Parts) disown(ctx context.Context, name string) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		d, err := p.deployments().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		kept := slices.DeleteFunc(slices.Clone(d.ManagedFields), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == fieldManager })
		if len(kept) == len(d.ManagedFields) {
			return nil
		}
		if len(kept) == 0 {
			kept = []metav1.ManagedFieldsEntry{{}} // an empty list changes nothing; one empty entry stands for none
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": d.ResourceVersion, "managedFields": kept}})
		if err != nil {
			return err
		}
		_, err = p.deployments().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
		return err
	})
}

func scalePatch(n int32, annotation string) string {
	return fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}},"spec":{"replicas":%d}}`, AnnotationReplicas, annotation, n)
}

// waitGone waits until none of the template's pods runs. The selector would not do: it may match another bundle's pods too. The labels of a
// bundle's agents are also those of TunnelPools' agents, which have one more.
func (p *Parts) waitGone(ctx context.Context, template corev1.PodTemplateSpec) error {
	opts := metav1.ListOptions{LabelSelector: konnectivity.PodsOf(metav1.LabelSelector{MatchLabels: template.Labels}, template.Labels)}
	return poll(ctx, func(ctx context.Context) error {
		pods, err := p.pods().List(ctx, opts)
		if err != nil {
			return err
		}
		var left []string
		for i := range pods.Items {
			if pod := &pods.Items[i]; !ended(pod) && !p.lost(ctx, pod) {
				left = append(left, pod.Name)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("%d pods still exist, including %s", len(left), left[0])
		}
		return nil
	})
}

// lost says whether a pod is being deleted but its node does not answer. Such a pod stays until the node comes back.
func (p *Parts) lost(ctx context.Context, pod *corev1.Pod) bool {
	if pod.DeletionTimestamp == nil || pod.Spec.NodeName == "" {
		return false
	}
	node, err := p.client.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	if err != nil {
		return false
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionUnknown
		}
	}
	return false
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
