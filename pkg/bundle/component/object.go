// SPDX-License-Identifier: Apache-2.0

package component

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is any object of the API.
type Object interface {
	metav1.Object
	runtime.Object
}

// IsBuiltInNamespace reports whether every cluster has the namespace, so that nothing renders it.
func IsBuiltInNamespace(name string) bool {
	return slices.Contains([]string{metav1.NamespaceSystem, metav1.NamespaceDefault, metav1.NamespacePublic, corev1.NamespaceNodeLease}, name)
}
