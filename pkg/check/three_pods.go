// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// threePod is one pod of the example in 'Configure Multiple Schedulers' in the Kubernetes
// documentation, and the scheduler that must bind it.
type threePod struct {
	pod    *corev1.Pod
	binder string
}

func examplePods(secondScheduler, image string) []threePod {
	one := func(name, container, scheduler, binder string) threePod {
		pod := newPod(name, scheduler, corev1.Container{Name: container, Image: image})
		pod.Labels = map[string]string{"name": "multischeduler-example"}
		return threePod{pod, binder}
	}
	return []threePod{
		one("no-annotation", "pod-with-no-annotation-container", "", stockSchedulerName),
		one("annotation-default-scheduler", "pod-with-default-annotation-container", stockSchedulerName, stockSchedulerName),
		one("annotation-second-scheduler", "pod-with-second-annotation-container", secondScheduler, secondScheduler),
	}
}

// threePods proves by the Scheduled events that each pod is bound by the scheduler that it
// names.
func threePods(ctx context.Context, s *Scope) error {
	pods := examplePods(s.SchedulerName, s.Probe.PauseImage)
	for i := range pods {
		made, err := s.createPod(ctx, pods[i].pod)
		if err != nil {
			return err
		}
		pods[i].pod = made
	}
	for _, p := range pods {
		if err := s.waitBoundBy(ctx, p.pod, p.binder); err != nil {
			return err
		}
	}
	return nil
}

// waitBoundBy waits until pod is on a node and exactly one Scheduled event of binder says so.
func (s *Scope) waitBoundBy(ctx context.Context, pod *corev1.Pod, binder string) error {
	var final error
	err := waitFor(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		got, err := s.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got.Spec.NodeName == "" {
			return WithHint(fmt.Errorf("%w (it names scheduler %q)", notRunning(got), binder), "check that scheduler %q runs, and that one of its replicas holds the Lease", binder)
		}
		events, err := s.scheduledEvents(ctx, pod.Namespace)
		if err != nil {
			return err
		}
		bindings := events[pod.UID]
		if len(bindings) == 0 {
			return noEvent(pod.Name, got.Spec.NodeName)
		}
		final = boundOnlyBy(pod.Name, bindings, binder)
		s.Detail(pod.Name, "on %s by %s", got.Spec.NodeName, bindings[0].reporter)
		return nil
	})
	if err != nil {
		return err
	}
	return final
}
