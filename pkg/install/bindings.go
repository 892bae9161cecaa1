// SPDX-License-Identifier: Apache-2.0

package install

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// boundRole is the key of the role that a binding binds, "" for other kinds.
func boundRole(u *unstructured.Unstructured) string {
	if !isBinding(u.GetKind()) {
		return ""
	}
	kind, _, _ := unstructured.NestedString(u.Object, "roleRef", "kind")
	name, _, _ := unstructured.NestedString(u.Object, "roleRef", "name")
	return roleKey(kind, u.GetNamespace(), name)
}

// roleKey cannot be a namespace's name.
func roleKey(kind, namespace, name string) string {
	if kind == "ClusterRole" {
		namespace = ""
	}
	return kind + " " + namespace + "/" + name
}

// isBinding reports whether objects of a kind can be deleted and recreated with
// an interruption of no more than a moment. kubectl auth reconcile does the same
// with bindings.
func isBinding(kind string) bool { return kind == "RoleBinding" || kind == "ClusterRoleBinding" }
