// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
)

// daemonTolerations are the taints that the DaemonSet controller makes each of its Pods
// tolerate: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#taints-and-tolerations
var daemonTolerations = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists},
	{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists},
	{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists},
	{Key: corev1.TaintNodePIDPressure, Operator: corev1.TolerationOpExists},
	{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists},
	{Key: corev1.TaintNodeNetworkUnavailable, Operator: corev1.TolerationOpExists},
}

// findStranded returns a finding if one of the changes leaves agents, which run on some
// node at present, without any: by a node selector, an affinity or missing tolerations,
// or by zero replicas. For kube-apiserver that is the same as their deletion. It also
// returns the workload.
func (c *client) findStranded(ctx context.Context, apiServers []string, changes []change) (*Finding, Ref, error) {
	var nodes *corev1.NodeList
	for _, ch := range changes {
		if ch.live == nil || ch.merged == nil || !konnectivity.Needed(ch.Kind, ch.Name, ch.live.GetLabels()) {
			continue
		}
		before, after, err := podsOf(ch.live, ch.merged)
		if err != nil {
			return nil, ch.Ref, fmt.Errorf("%s: %w", ch.Ref, err)
		}
		if before == nil || after == nil {
			continue // it has no Pods
		}
		if nodes == nil {
			if nodes, err = c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
				return nil, ch.Ref, err
			}
		}
		now, then, err := countPlaces(*before, *after, nodes.Items)
		if err != nil {
			return nil, ch.Ref, fmt.Errorf("%s: %w", ch.Ref, err)
		}
		if now > 0 && then == 0 {
			return &Finding{
				ID: FindingInUse,
				Message: fmt.Sprintf("kube-apiserver sends its traffic to nodes through the tunnel (%s), and this would leave no node for %s, which now matches %d of %d: without agents, logs, exec, webhooks and aggregated APIs stop",
					strings.Join(apiServers, ", "), ch.Ref, now, len(nodes.Items)),
				Hint: "compare the agents' nodeSelector, affinity, tolerations and replicas in the bundle with the labels and taints of the nodes",
			}, ch.Ref, nil
		}
	}
	return nil, Ref{}, nil
}

// podTemplate is a workload's Pod as far as its place is concerned.
type podTemplate struct {
	daemon   bool
	replicas int64
	pod      *corev1.Pod
}

// podsOf returns the Pods of a workload before and after a change; nil for an object
// without Pods.
func podsOf(live, merged *unstructured.Unstructured) (before, after *podTemplate, err error) {
	if before, err = podOf(live); err != nil || before == nil {
		return nil, nil, err
	}
	after, err = podOf(merged)
	return before, after, err
}

func podOf(u *unstructured.Unstructured) (*podTemplate, error) {
	template, found, err := unstructured.NestedMap(u.Object, "spec", "template")
	if err != nil || !found {
		return nil, err
	}
	t := &podTemplate{daemon: u.GetKind() == "DaemonSet", replicas: 1, pod: &corev1.Pod{}}
	if n, found, err := unstructured.NestedInt64(u.Object, "spec", "replicas"); err == nil && found {
		t.replicas = n
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, t.pod); err != nil {
		return nil, fmt.Errorf("spec.template: %w", err)
	}
	if t.daemon {
		t.pod.Spec.Tolerations = append(t.pod.Spec.Tolerations, daemonTolerations...)
	}
	return t, nil
}

// countPlaces counts the nodes that fit the Pods before and after a change.
func countPlaces(before, after podTemplate, nodes []corev1.Node) (now, then int, err error) {
	for i := range nodes {
		fitsBefore, err := before.fits(&nodes[i])
		if err != nil {
			return 0, 0, err
		}
		fitsAfter, err := after.fits(&nodes[i])
		if err != nil {
			return 0, 0, err
		}
		if fitsBefore {
			now++
		}
		if fitsAfter {
			then++
		}
	}
	return now, then, nil
}

// fits reports whether a node matches the Pod's selector, affinity and tolerations.
func (t podTemplate) fits(node *corev1.Node) (bool, error) {
	if t.replicas == 0 && !t.daemon {
		return false, nil
	}
	match, err := nodeaffinity.GetRequiredNodeAffinity(t.pod).Match(node)
	if err != nil || !match {
		return false, err
	}
	_, repelled := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, t.pod.Spec.Tolerations, func(taint *corev1.Taint) bool {
		return taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
	}, false)
	return !repelled, nil
}
