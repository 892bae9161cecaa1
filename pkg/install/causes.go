// SPDX-License-Identifier: Apache-2.0

package install

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
)

const (
	// maxCauses keeps a broken image on 500 nodes from filling the screen.
	maxCauses = 5
	logLines  = 5
	// logTimeout is short: logs may have to pass through the tunnel that is being
	// installed.
	logTimeout = 3 * time.Second
)

// podCauses lists what is wrong with the Pods of a workload that is not ready,
// with the most informative cause first. It omits what it cannot read, because
// the list only explains an error.
func (c *client) podCauses(ctx context.Context, w workload) []string {
	if w.selector == nil {
		return nil
	}
	selector := konnectivity.PodsOf(*w.selector, ptr.Deref(w.template, corev1.PodTemplateSpec{}).Labels)
	pods, err := c.kube.CoreV1().Pods(w.ref.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil
	}
	if len(pods.Items) == 0 {
		return c.createFailures(ctx, w.ref)
	}
	var causes []string
	more := 0
	for i := range pods.Items {
		cause := c.podCause(ctx, &pods.Items[i])
		switch {
		case cause == "":
		case len(causes) < maxCauses:
			causes = append(causes, cause)
		default:
			more++
		}
	}
	if more > 0 {
		causes = append(causes, fmt.Sprintf("and %d more Pods", more))
	}
	return causes
}

// createFailures returns why a controller cannot create Pods: a DaemonSet has no
// condition for that, only Events.
func (c *client) createFailures(ctx context.Context, r Ref) []string {
	events, err := c.kube.CoreV1().Events(r.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fmt.Sprintf("involvedObject.kind=%s,involvedObject.name=%s,reason=FailedCreate", r.Kind, r.Name),
	})
	if err != nil || len(events.Items) == 0 {
		return nil
	}
	newest := slices.MaxFunc(events.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	return []string{newest.Message}
}

// podCause returns "" for a healthy Pod.
func (c *client) podCause(ctx context.Context, pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return fmt.Sprintf("Pod %s is ending since %s", pod.Name, pod.DeletionTimestamp.UTC().Format("15:04:05 MST"))
	}
	for _, cond := range pod.Status.Conditions {
		if cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionFalse {
			return fmt.Sprintf("Pod %s is not scheduled: %s", pod.Name, cond.Message)
		}
	}
	if pod.Spec.NodeName == "" {
		return fmt.Sprintf("Pod %s waits for scheduler %q", pod.Name, pod.Spec.SchedulerName)
	}
	where := fmt.Sprintf("Pod %s on node %s", pod.Name, pod.Spec.NodeName)
	if pod.Status.Phase == corev1.PodFailed {
		return fmt.Sprintf("%s failed: %s", where, cmp.Or(pod.Status.Message, pod.Status.Reason))
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if cause := c.containerCause(ctx, pod, s); cause != "" {
			return where + ": " + cause
		}
	}
	if len(pod.Status.ContainerStatuses) == 0 {
		return where + ": the kubelet has not started it"
	}
	return ""
}

func (c *client) containerCause(ctx context.Context, pod *corev1.Pod, s corev1.ContainerStatus) string {
	image := ""
	if w := s.State.Waiting; w != nil {
		switch w.Reason {
		case "PodInitializing", "ContainerCreating":
			return "the container is being made"
		case "CrashLoopBackOff":
			return c.crash(ctx, pod, s, s.LastTerminationState.Terminated)
		case "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull":
			image = " " + s.Image
		}
		return fmt.Sprintf("%s%s: %s", w.Reason, image, w.Message)
	}
	if s.State.Terminated != nil && s.State.Terminated.ExitCode != 0 {
		return c.crash(ctx, pod, s, s.State.Terminated)
	}
	if s.State.Running != nil && !s.Ready {
		if s.RestartCount > 0 {
			return c.crash(ctx, pod, s, s.LastTerminationState.Terminated)
		}
		return "it runs, but its readiness probe does not succeed" + c.lastProbe(ctx, pod)
	}
	return ""
}

// crash describes how a container exited, and quotes the end of its log.
func (c *client) crash(ctx context.Context, pod *corev1.Pod, s corev1.ContainerStatus, end *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("container %s crashed %s", s.Name, times(s.RestartCount))
	if end != nil {
		text += fmt.Sprintf(", last with exit code %d (%s)", end.ExitCode, end.Reason)
		if end.Message != "" {
			return text + ": " + strings.TrimSpace(end.Message)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	data, err := c.kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: s.Name, Previous: s.State.Terminated == nil, TailLines: ptr.To[int64](logLines),
	}).DoRaw(ctx)
	if err != nil {
		return text + "; its log cannot be read: " + err.Error()
	}
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		text += "\n  | " + line
	}
	return text
}

func times(n int32) string {
	if n <= 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// lastProbe returns the newest event about a failed probe.
func (c *client) lastProbe(ctx context.Context, pod *corev1.Pod) string {
	events, err := c.kube.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fmt.Sprintf("involvedObject.uid=%s,reason=Unhealthy", pod.UID),
	})
	if err != nil || len(events.Items) == 0 {
		return ""
	}
	newest := slices.MaxFunc(events.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	return ": " + newest.Message
}
