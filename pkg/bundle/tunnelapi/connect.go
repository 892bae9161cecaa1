// SPDX-License-Identifier: Apache-2.0

package tunnelapi

import (
	rbacv1 "k8s.io/api/rbac/v1"

	tunnelv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/rbac"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

const (
	// ConnectRole is the ClusterRole of users who may open connections through agents. It gives no right to a destination.
	ConnectRole = "fairlead-tunnel-connect"
	// DestinationsRole is the ClusterRole of users who may connect to Services and Pods, for a RoleBinding in the
	// namespace of these.
	DestinationsRole = "fairlead-tunnel-destinations"
)

// connectObjects are those that only connections through agents need.
func connectObjects(b *v1alpha1.Bundle) []component.Object {
	if !Connects(b) {
		return nil
	}
	resolver, binding := resolverRole(), rbac.ClusterRoleBinding(resolverName, resolverName, rbac.ServiceAccount(b.Namespace, v1alpha1.TunnelAPIName))
	binding.Labels = Labels()
	return []component.Object{resolver, binding, connectRole(), destinationsRole()}
}

// resolverName names the ClusterRole with which the API server finds out what names and addresses belong to.
const resolverName = v1alpha1.TunnelAPIName + "-resolver"

func resolverRole() *rbacv1.ClusterRole {
	rule := func(group string, verbs []string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
	}
	role := rbac.ClusterRole(resolverName,
		rule("", []string{"get", "list"}, "services"),
		rule("", []string{"list"}, "pods", "nodes"),
		rule("discovery.k8s.io", []string{"list"}, "endpointslices"))
	role.Labels = Labels()
	return role
}

func connectRole() *rbacv1.ClusterRole {
	rule := func(resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{tunnelv1alpha1.GroupName}, Resources: []string{resource}, Verbs: verbs}
	}
	role := rbac.ClusterRole(ConnectRole,
		rule("tunnelagents", "get", "list"),
		rule("tunnelagents/"+tunnelv1alpha1.SubresourceConnect, "get", "create"))
	role.Labels = Labels()
	return role
}

func destinationsRole() *rbacv1.ClusterRole {
	role := rbac.ClusterRole(DestinationsRole, rbacv1.PolicyRule{
		APIGroups: []string{tunnelv1alpha1.GroupName}, Verbs: []string{tunnelv1alpha1.VerbConnect},
		Resources: []string{tunnelv1alpha1.ResourceDestinations + "/services", tunnelv1alpha1.ResourceDestinations + "/pods"},
	})
	role.Labels = Labels()
	return role
}
