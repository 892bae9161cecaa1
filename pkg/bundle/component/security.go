// SPDX-License-Identifier: Apache-2.0

package component

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// NonRoot is the user and group of programs that need no root: the usual id of
// "nonroot", which no host account has.
const NonRoot int64 = 65532

// RestrictedPod is the Pod half of Pod Security level restricted.
func RestrictedPod() *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(NonRoot), RunAsGroup: ptr.To(NonRoot),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// RootPod is as close to level restricted as possible for a program that must
// read root's files.
func RootPod() *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsUser: ptr.To(int64(0)), RunAsGroup: ptr.To(int64(0)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// RestrictedContainer is the container half, for root and others alike: no
// capability, no way to gain one, nothing to write to.
func RestrictedContainer() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		Privileged: ptr.To(false), AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// SpreadHosts prefers nodes that run none of the Pods with these labels. It is
// only a preference, so one node is enough, and a rolling update on two nodes
// does not wait for a third.
func SpreadHosts(labels map[string]string) *corev1.Affinity {
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 100,
			PodAffinityTerm: corev1.PodAffinityTerm{
				TopologyKey:   corev1.LabelHostname,
				LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
			},
		}},
	}}
}
