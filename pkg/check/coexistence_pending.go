// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ignoredAfter is for how long no scheduler may look at a pod before that is worth a warning. Schedulers take milliseconds, a failover seconds.
	ignoredAfter = 2 * time.Minute
	// maxIgnoredNames bounds the warnings, one for each name of a scheduler.
	maxIgnoredNames = 5
)

// ignoredPods are pods that name one scheduler, which has not looked at any of them.
type ignoredPods struct {
	count   int
	example string
}

// warnOfIgnoredPods finds pods that name a scheduler which does not exist, for instance because the name is misspelled. Nothing else shows this: such a
// pod has no event and no condition. A scheduler that has looked at a pod has left condition PodScheduled, and one that has ever bound a pod of its
// name exists.
func (s *Scope) warnOfIgnoredPods(ctx context.Context) {
	ignored, err := s.ignoredPods(ctx, time.Now().Add(-ignoredAfter))
	if err != nil {
		s.Detail("ignored-pods", "not checked: %v", err)
		return
	}
	names := slices.Sorted(maps.Keys(ignored))
	for i, name := range names {
		if i == maxIgnoredNames {
			s.Warn("pending pods name %d more schedulers that do not handle them", len(names)-i)
			return
		}
		s.Warn("no scheduler handles pending pods that name scheduler %q (%d, for example %s): correct spec.schedulerName, or start that scheduler",
			name, ignored[name].count, ignored[name].example)
	}
}

// ignoredPods are keyed by the name of the scheduler.
func (s *Scope) ignoredPods(ctx context.Context, before time.Time) (map[string]ignoredPods, error) {
	pods, err := s.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	out := map[string]ignoredPods{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		name := pod.Spec.SchedulerName
		if name == "" || name == stockSchedulerName || slices.Contains(s.Coexistence.SchedulerNames, name) || lookedAt(pod) || !pod.CreationTimestamp.Time.Before(before) {
			continue
		}
		found := out[name]
		if found.count++; found.count == 1 {
			found.example = pod.Namespace + "/" + pod.Name
		}
		out[name] = found
	}
	for name := range out {
		binds, err := s.hasBound(ctx, name)
		if err != nil {
			return nil, err
		}
		if binds {
			delete(out, name)
		}
	}
	return out, nil
}

// lookedAt says whether a scheduler, or the API server for a pod with gates, has said something of the pod, or need not.
func lookedAt(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodPending || len(pod.Spec.SchedulingGates) > 0 ||
		slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
}

// hasBound says whether a pod that names the scheduler is on a node. A queue of its own may keep such a scheduler from looking at a pod for long.
func (s *Scope) hasBound(ctx context.Context, name string) (bool, error) {
	pods, err := s.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.schedulerName=" + name + ",spec.nodeName!=", Limit: 1})
	if err != nil {
		return false, fmt.Errorf("list pods of scheduler %s: %w", name, err)
	}
	return slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Spec.SchedulerName == name && p.Spec.NodeName != "" }), nil // fakes do not know the selector
}
