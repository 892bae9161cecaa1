// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// schedulerPending submits the three pods of the documentation's example while no second scheduler runs. It proves that two are bound and
// that the third stays Pending and untouched until the second scheduler runs.
func schedulerPending(ctx context.Context, s *Scope) error {
	if s.Parts == nil {
		return Skip("stopping the second scheduler is not supported on this cluster")
	}
	s.Defer("start the second scheduler", s.Parts.StartScheduler)
	if err := s.Parts.StopScheduler(ctx); err != nil {
		return fmt.Errorf("stop the second scheduler: %w", err)
	}
	pods := examplePods(s.SchedulerName, s.Probe.PauseImage)
	for i := range pods {
		made, err := s.createPod(ctx, pods[i].pod)
		if err != nil {
			return err
		}
		pods[i].pod = made
	}
	for _, p := range pods[:2] {
		if err := s.waitBoundBy(ctx, p.pod, p.binder); err != nil {
			return err
		}
	}
	third := pods[2]
	if err := s.staysUntouched(ctx, third.pod, s.times.pending); err != nil {
		return err
	}
	s.Detail("pending", "%s stayed untouched for %s", third.pod.Name, s.times.pending)
	begin := time.Now()
	if err := s.Parts.StartScheduler(ctx); err != nil {
		return fmt.Errorf("start the second scheduler: %w", err)
	}
	if err := s.waitBoundBy(ctx, third.pod, third.binder); err != nil {
		return err
	}
	s.Detail("bound-after-start", "%s", time.Since(begin).Round(100*time.Millisecond))
	return nil
}

// staysUntouched fails as soon as a scheduler has handled the pod.
func (s *Scope) staysUntouched(ctx context.Context, pod *corev1.Pod, d time.Duration) error {
	until := time.Now().Add(d)
	for time.Now().Before(until) {
		got, err := s.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := s.touched(ctx, got); err != nil {
			return WithHint(err, "another scheduler may serve %q, or a replica may still run", s.SchedulerName)
		}
		if err := sleep(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// touched says what a scheduler did to the pod, or nil.
func (s *Scope) touched(ctx context.Context, pod *corev1.Pod) error {
	const while = "while the second scheduler was stopped"
	if pod.Spec.NodeName != "" {
		return fmt.Errorf("pod %s was bound to %s %s", pod.Name, pod.Spec.NodeName, while)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return fmt.Errorf("pod %s got condition PodScheduled=%s (%s) %s", pod.Name, c.Status, c.Reason, while)
		}
	}
	events, err := s.Client.EventsV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list events: %w", err)
	}
	for _, e := range events.Items {
		if e.Regarding.UID == pod.UID {
			return fmt.Errorf("pod %s got an event %s of %s %s: %s", pod.Name, e.Reason, e.ReportingController, while, e.Note)
		}
	}
	return nil
}
