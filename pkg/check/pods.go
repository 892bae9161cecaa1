// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// newPod returns a pod that the restricted Pod Security level admits and that ends at once on SIGTERM.
func newPod(name, scheduler string, c corev1.Container) *corev1.Pod {
	c.SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			SchedulerName:                 scheduler,
			AutomountServiceAccountToken:  ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To(int64(1)),
			Containers:                    []corev1.Container{c},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(int64(65535)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		},
	}
}

// createPod creates pod in the check's namespace. The namespace is new, so the default ServiceAccount may not be there yet.
func (s *Scope) createPod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	ns, err := s.Namespace(ctx)
	if err != nil {
		return nil, err
	}
	var made *corev1.Pod
	var fatal error
	err = waitFor(ctx, 50*time.Millisecond, func(ctx context.Context) error {
		made, err = s.Client.CoreV1().Pods(ns.Name).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil && !(apierrors.IsForbidden(err) && strings.Contains(err.Error(), "service account")) {
			fatal = err
			return nil
		}
		return err
	})
	if fatal != nil {
		err = fatal
	}
	if err != nil {
		return nil, fmt.Errorf("create pod %s: %w", pod.Name, err)
	}
	return made, nil
}

// probePod returns the pod that logs, exec and port-forward talk to, the run's or one of the check's own.
func (s *Scope) probePod(ctx context.Context) (*corev1.Pod, error) {
	var pod *corev1.Pod
	var err error
	if s.probe != nil {
		pod, err = s.probe.get(ctx)
	} else {
		pod, err = s.ownProbePod(ctx, func(error) {})
	}
	if err != nil {
		return nil, WithHint(err, "the check needs a running pod; set its image with --image (now %s)", s.Probe.Image)
	}
	s.Detail("node", "%s", pod.Spec.NodeName)
	return pod, nil
}

// ownProbePod creates such a pod and waits until its node reports that it runs. Until then it calls waits with the reason
// why it does not run yet.
func (s *Scope) ownProbePod(ctx context.Context, waits func(error)) (*corev1.Pod, error) {
	pod := newPod("probe", "", corev1.Container{
		Name: "probe", Image: s.Probe.Image, Command: s.Probe.Command, Args: s.Probe.Args,
	})
	pod, err := s.createPod(ctx, pod)
	if err != nil {
		return nil, err
	}
	err = waitFor(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		got, err := s.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pod = got
		why := notRunning(pod)
		waits(why)
		return why
	})
	return pod, err
}

// notRunning says why pod does not run yet, or nil.
func notRunning(pod *corev1.Pod) error {
	if pod.Spec.NodeName == "" {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Message != "" {
				return fmt.Errorf("pod %s is not bound to a node: %s", pod.Name, c.Message)
			}
		}
		return fmt.Errorf("pod %s is not bound to a node, and no scheduler handles it", pod.Name)
	}
	for _, cs := range pod.Status.ContainerStatuses {
		if w := cs.State.Waiting; w != nil {
			return fmt.Errorf("pod %s on %s is waiting: %s %s", pod.Name, pod.Spec.NodeName, w.Reason, w.Message)
		}
	}
	if pod.Status.Phase != corev1.PodRunning {
		return fmt.Errorf("pod %s on %s is %s", pod.Name, pod.Spec.NodeName, pod.Status.Phase)
	}
	return nil
}
