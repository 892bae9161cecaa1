// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Partition reserves nodes for the second scheduler. Two schedulers that use
// the same nodes race for the same resources; only a partition prevents that.
type Partition struct {
	// nodeLabels select the scheduler's nodes: those with all of these labels. All its
	// profiles choose from these nodes alone (NodeAffinity's addedAffinity), whatever
	// the Pod says. Required.
	// +optional
	// +kubebuilder:validation:MaxProperties=128
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`

	// taint of these nodes that keeps other schedulers' Pods away, with effect
	// NoSchedule or NoExecute: PreferNoSchedule keeps no Pods away. The scheduler's
	// own Pods must tolerate it, which Assignment adds. Fairlead taints no nodes:
	// `fairlead verify` reports the nodes whose labels or taints do not match.
	// Default: none, and then other schedulers still place their Pods here.
	// +optional
	Taint *corev1.Taint `json:"taint,omitempty"`
}

// Assignment makes Pods name a profile without a change of their manifests, by a
// MutatingAdmissionPolicy. It changes new Pods that name the default scheduler, and
// gives them the partition's toleration. A Pod that names any other scheduler keeps
// it.
type Assignment struct {
	// schedulerName is the profile. Default: the bundle's first one.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SchedulerName string `json:"schedulerName,omitempty"`

	// namespaceSelector selects namespaces by their labels. Namespace kube-system and
	// the bundle's own are always left out, since what a cluster needs to start must
	// not wait for the second scheduler.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// podSelector selects Pods by their labels. At least one of both selectors is
	// required; with both, both must match.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
}
