// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// OwnsIdentity says whether a holder's identity names a pod of the second scheduler.
func (p *Parts) OwnsIdentity(ctx context.Context, holder string) (bool, error) {
	pods, err := p.pods().List(ctx, metav1.ListOptions{LabelSelector: p.names.SchedulerPods})
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

// FormerIdentity says whether a holder's identity names a pod of the second scheduler that is gone. The name alone is not enough, because a
// Deployment of the documented name may exist in any namespace. So no pod may have the name now, and a ReplicaSet of our Deployment must have created
// the pod; the Deployment keeps the ReplicaSets of its former templates. If at is before the creation of the Deployment, or the Deployment is gone,
// the name alone decides: a reinstallation deletes the old ReplicaSets.
func (p *Parts) FormerIdentity(ctx context.Context, holder string, at time.Time) (bool, error) {
	name, _, _ := strings.Cut(holder, "_")
	if !strings.HasPrefix(name, p.names.Scheduler+"-") {
		return false, nil
	}
	if alive, err := p.podExists(ctx, name); err != nil || alive {
		return false, err
	}
	d, err := p.deployments().Get(ctx, p.names.Scheduler, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil || at.Before(d.CreationTimestamp.Time) {
		return err == nil, err
	}
	sets, err := p.client.AppsV1().ReplicaSets(p.names.Namespace).List(ctx, metav1.ListOptions{LabelSelector: p.names.SchedulerPods})
	if err != nil {
		return false, err
	}
	for i := range sets.Items {
		if metav1.IsControlledBy(&sets.Items[i], d) && madeBy(name, sets.Items[i].Name) {
			return true, nil
		}
	}
	return false, nil
}

// podExists looks for a pod of that name in all namespaces.
func (p *Parts) podExists(ctx context.Context, name string) (bool, error) {
	pods, err := p.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if err != nil {
		return false, err
	}
	for _, pod := range pods.Items {
		if pod.Name == name { // fakes do not know the selector
			return true, nil
		}
	}
	return false, nil
}

// The API server appends 5 characters to generateName, and truncates it so that the name stays a valid host name.
const nameSuffix, maxGenerateName = 5, 63 - 5

// madeBy says whether the ReplicaSet generated this pod name.
func madeBy(pod, replicaSet string) bool {
	base := replicaSet + "-"
	base = base[:min(len(base), maxGenerateName)]
	return len(pod) == len(base)+nameSuffix && strings.HasPrefix(pod, base)
}
