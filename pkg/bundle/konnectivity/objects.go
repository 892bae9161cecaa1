// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/rbac"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

const (
	addonModeLabel     = "addonmanager.kubernetes.io/mode"
	addonModeReconcile = "Reconcile"
	clusterService     = "kubernetes.io/cluster-service"
)

func addonLabels() map[string]string {
	return map[string]string{clusterService: "true", addonModeLabel: addonModeReconcile}
}

// Objects are the in-cluster objects of the tunnel, in the order in which to apply them;
// none if it is not enabled.
func Objects(b *v1alpha1.Bundle) ([]component.Object, error) {
	b = b.Defaulted()
	k := &b.Konnectivity
	if !ptr.Deref(k.Enabled, true) {
		return nil, nil
	}
	objects := rights(b)
	if UsesService(b) {
		objects = append(objects, service(b))
	}
	if k.Server.Form == v1alpha1.FormDaemonSet {
		objects = append(objects, component.DaemonSet(Server(b)))
	}
	objects = append(objects, serviceAccount(b))
	if ptr.Deref(k.Agent.NetworkPolicy, true) && !ptr.Deref(k.Agent.HostNetwork, false) {
		objects = append(objects, agentPolicy(b))
	}
	if k.Agent.Form == v1alpha1.FormDeployment {
		budget := component.DisruptionBudget(metav1.ObjectMeta{Name: AgentName, Namespace: b.Namespace}, agentLabels())
		// With the Pods of a TunnelPool in a DaemonSet, which has no scale, Kubernetes could not compute the budget, and would
		// refuse every eviction.
		budget.Spec.Selector.MatchExpressions = append(budget.Spec.Selector.MatchExpressions, notOfPool)
		return append(objects, budget, component.Deployment(Agent(b))), nil
	}
	return append(objects, component.DaemonSet(Agent(b))), nil
}

// rights lets the server review tokens and, if agents claim addresses, see nodes; with
// lease counting it also lets both sides access the servers' Leases.
func rights(b *v1alpha1.Bundle) []component.Object {
	server := rbac.User(ServerUser)
	// Not system:auth-delegator, which also allows SubjectAccessReviews. The role of a binding cannot change, so the
	// binding has another name than the one that older bundles made.
	role := rbac.ClusterRole(tokenReviewer, rbacv1.PolicyRule{
		APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}})
	binding := rbac.ClusterRoleBinding(tokenReviewer, tokenReviewer, server)
	role.Labels, binding.Labels = addonLabels(), addonLabels()
	objects := []component.Object{role, binding}
	if ids := identifiers(b); len(ids["ipv4"])+len(ids["ipv6"])+len(ids["host"]) > 0 {
		// The server reads nodes to verify the names and addresses that agents claim.
		objects = append(objects,
			rbac.ClusterRole(ServerUser+":nodes", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list"}}),
			rbac.ClusterRoleBinding(ServerUser+":nodes", ServerUser+":nodes", server))
	}
	if !ptr.Deref(b.Konnectivity.LeaseCounting, false) {
		return objects
	}
	agent := rbac.ServiceAccount(b.Namespace, b.Konnectivity.AgentServiceAccount)
	// The servers' Leases have generated names, so no rule can name them; the namespace
	// is the limit.
	namespace := b.Konnectivity.LeaseNamespace
	return append(objects,
		rbac.Role(namespace, ServerName+"-leases", leaseRule("get", "list", "create", "update", "patch", "delete")),
		rbac.RoleBinding(namespace, ServerName+"-leases", ServerName+"-leases", server),
		rbac.Role(namespace, AgentName+"-leases", leaseRule("list", "watch")),
		rbac.RoleBinding(namespace, AgentName+"-leases", AgentName+"-leases", agent),
	)
}

func leaseRule(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: verbs}
}

// UsesService reports whether agents find servers by the rendered Service, as they
// do unless serverHost was set to something else.
func UsesService(b *v1alpha1.Bundle) bool {
	b = b.Defaulted()
	return b.Konnectivity.ServerHost == v1alpha1.ServiceHost(b.Namespace)
}

// service is headless, so that its name resolves to every server, and lists servers that
// are not ready: a server becomes ready by its first agent, which would otherwise never
// find it.
func service(b *v1alpha1.Bundle) *corev1.Service {
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Name: v1alpha1.DefaultServerService, Namespace: b.Namespace, Labels: serverLabels(),
		},
		Spec: corev1.ServiceSpec{
			ClusterIP:                corev1.ClusterIPNone,
			PublishNotReadyAddresses: true,
			Selector:                 serverLabels(),
			Ports: []corev1.ServicePort{{
				Name: "agent", Protocol: corev1.ProtocolTCP,
				Port: b.Konnectivity.AgentPort, TargetPort: intstr.FromInt32(b.Konnectivity.AgentPort),
			}},
		},
	}
}

func serviceAccount(b *v1alpha1.Bundle) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{
			Name: b.Konnectivity.AgentServiceAccount, Namespace: b.Namespace, Labels: addonLabels(),
		},
		// Agents' Pods mount what they need.
		AutomountServiceAccountToken: ptr.To(false),
	}
}

// agentPolicy allows the kubelet's probes and scrapes of metrics. It cannot name the
// kubelets' addresses, which are not known here; network plugins allow a node's own traffic
// anyway. Agents dial the servers, so no other connections come in.
func agentPolicy(b *v1alpha1.Bundle) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: AgentName, Namespace: b.Namespace},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: agentLabels()},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{
				Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(b.Konnectivity.Agent.HealthPort)),
			}}}},
		},
	}
}
