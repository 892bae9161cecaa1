package konnectivity

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
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

// Objects are the in-cluster objects of the tunnel, in the order in which to
// apply them (KON-83); none if it is not enabled.
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
	if k.Agent.Form == v1alpha1.FormDeployment {
		return append(objects, agentDisruptionBudget(b), component.Deployment(Agent(b))), nil
	}
	return append(objects, component.DaemonSet(Agent(b))), nil
}

// rights lets the server review tokens and, if agents claim addresses, see nodes; with lease counting it also lets both
// sides at the servers' Leases.
func rights(b *v1alpha1.Bundle) []component.Object {
	server := rbac.User(ServerUser)
	delegator := rbac.ClusterRoleBinding(ServerUser, "system:auth-delegator", server)
	delegator.Labels = addonLabels()
	objects := []component.Object{delegator}
	if ids := identifiers(b); len(ids["ipv4"])+len(ids["ipv6"])+len(ids["host"]) > 0 {
		// To see whose the names and addresses are that agents claim.
		objects = append(objects,
			rbac.ClusterRole(ServerUser+":nodes", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}}),
			rbac.ClusterRoleBinding(ServerUser+":nodes", ServerUser+":nodes", server))
	}
	if !ptr.Deref(b.Konnectivity.LeaseCounting, false) {
		return objects
	}
	agent := rbac.ServiceAccount(b.Namespace, b.Konnectivity.AgentServiceAccount)
	return append(objects,
		// The servers' Leases have generated names, so no rule can name them; the
		// namespace is the limit.
		rbac.Role(b.Namespace, ServerName+"-leases", leaseRule("create", "get", "list", "watch", "update", "patch", "delete")),
		rbac.RoleBinding(b.Namespace, ServerName+"-leases", ServerName+"-leases", server),
		rbac.Role(b.Namespace, AgentName+"-leases", leaseRule("get", "list", "watch")),
		rbac.RoleBinding(b.Namespace, AgentName+"-leases", AgentName+"-leases", agent),
	)
}

func leaseRule(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: verbs}
}

// UsesService tells whether agents find servers by the rendered Service, as they
// do unless serverHost was set to something else.
func UsesService(b *v1alpha1.Bundle) bool {
	b = b.Defaulted()
	return b.Konnectivity.ServerHost == v1alpha1.ServiceHost(b.Namespace)
}

// service is headless, so that its name resolves to every server (KON-77), and
// lists servers that are not ready: a server becomes ready by its first agent,
// which would otherwise never find it.
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
	}
}

func agentDisruptionBudget(b *v1alpha1.Bundle) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Name: AgentName, Namespace: b.Namespace},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable:             ptr.To(intstr.FromInt32(1)),
			Selector:                   &metav1.LabelSelector{MatchLabels: agentLabels()},
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
		},
	}
}
