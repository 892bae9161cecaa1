// SPDX-License-Identifier: Apache-2.0

package component

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

const (
	// APIDir is where clients in Pods look for what they need to call kube-apiserver.
	APIDir = "/var/run/secrets/kubernetes.io/serviceaccount"
	// TokenSeconds is the kubelet's own default for projected tokens.
	TokenSeconds = 3600
	// CAKey is the key of the CA's certificate in the Secret of a serving certificate.
	CAKey = "ca.crt"
)

// ServiceAccount is one whose token no Pod gets by default: the Pods mount what they need.
func ServiceAccount(m metav1.ObjectMeta) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: m,
		AutomountServiceAccountToken: ptr.To(false),
	}
}

// DisruptionBudget lets drains of nodes evict one of the selected Pods at a time, and those that
// are not ready at any time.
func DisruptionBudget(m metav1.ObjectMeta, selector map[string]string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}, ObjectMeta: m,
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable:             ptr.To(intstr.FromInt32(1)),
			Selector:                   &metav1.LabelSelector{MatchLabels: selector},
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
		},
	}
}

// CertificateSecret is a serving certificate with its key and its CA, all PEM, as Pods mount it.
func CertificateSecret(m metav1.ObjectMeta, cert, key, ca []byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: m,
		Type: corev1.SecretTypeTLS, Data: map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key, CAKey: ca},
	}
}
