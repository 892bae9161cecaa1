// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errRefused stops the wait for Pods that admission will reject until a user acts.
var errRefused = errors.New("the API server refuses its Pods, and that does not change by itself")

// lasting matches admission's messages about Pods that it rejects because of their
// spec. It does not match temporary reasons: an exhausted quota, a ServiceAccount that
// does not exist yet, or a webhook that does not answer.
var lasting = regexp.MustCompile(`failed quota: .*must specify |violates PodSecurity "|(minimum|maximum) \S+ usage per (Pod|Container)|ValidatingAdmissionPolicy '.*denied request`)

// refusedForGood reports whether admission rejected a Pod of the controller for a
// lasting reason. The controller's conditions and events may be older than a user's
// fix, so a dry run of the Pod must be rejected for such a reason as well.
func (c *client) refusedForGood(ctx context.Context, w workload, causes []string) bool {
	if w.template == nil || !slices.ContainsFunc(causes, lasting.MatchString) {
		return false
	}
	pod := &corev1.Pod{ObjectMeta: *w.template.ObjectMeta.DeepCopy(), Spec: *w.template.Spec.DeepCopy()}
	pod.Name, pod.GenerateName, pod.Namespace = "", "fairlead-probe-", w.ref.Namespace
	_, err := c.kube.CoreV1().Pods(w.ref.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) && lasting.MatchString(err.Error())
}
