// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/rbac"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

const rulesName = v1alpha1.GatewayName + "-rules"

// Objects are the in-cluster objects of the gateway, in the order in which to apply them;
// none if it is not enabled. The Secret with its certificate is not among them, because a
// bundle holds no keys. A static Pod needs only the RBAC objects of its user.
func Objects(b *v1alpha1.Bundle) ([]component.Object, error) {
	b = b.Defaulted()
	g := &b.Gateway
	switch {
	case !Enabled(b):
		return nil, nil
	case g.Form == v1alpha1.FormStaticPod:
		return rights(rbac.User(User)), nil
	}
	objects := append([]component.Object{component.ServiceAccount(meta(b, v1alpha1.GatewayName))}, rights(rbac.ServiceAccount(b.Namespace, v1alpha1.GatewayName))...)
	if g.Rules != nil {
		data, err := RuleFile(b)
		if err != nil {
			return nil, err
		}
		objects = append(objects, &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: meta(b, rulesName),
			Data:       map[string]string{rulesKey: string(data)},
		})
	}
	objects = append(objects, service(b))
	if ptr.Deref(g.NetworkPolicy, true) {
		objects = append(objects, networkPolicy(b))
	}
	if ptr.Deref(g.Replicas, 1) > 1 {
		objects = append(objects, component.DisruptionBudget(meta(b, v1alpha1.GatewayName), Labels()))
	}
	return append(objects, component.Deployment(Component(b))), nil
}

// RuleFile is the content of the rule file; rules must be set.
func RuleFile(b *v1alpha1.Bundle) ([]byte, error) {
	data, err := yaml.Marshal(struct {
		metav1.TypeMeta        `json:",inline"`
		*v1alpha1.GatewayRules `json:",inline"`
	}{metav1.TypeMeta{APIVersion: v1alpha1.GatewayRulesVersion, Kind: "GatewayRules"}, b.Gateway.Rules})
	if err != nil {
		return nil, fmt.Errorf("encode gateway.rules: %w", err)
	}
	return data, nil
}

// rights are what the gateway asks the API server: who clients are, what they may do, and
// what names and addresses belong to. It changes nothing and reads no Secrets.
func rights(subject rbacv1.Subject) []component.Object {
	rule := func(group string, verbs []string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
	}
	role := rbac.ClusterRole(v1alpha1.GatewayName,
		rule("authentication.k8s.io", []string{"create"}, "tokenreviews"),
		rule("authorization.k8s.io", []string{"create"}, "subjectaccessreviews"),
		rule("", []string{"get", "list"}, "services"),
		rule("", []string{"list"}, "pods", "nodes"),
		rule("discovery.k8s.io", []string{"list"}, "endpointslices"))
	binding := rbac.ClusterRoleBinding(v1alpha1.GatewayName, v1alpha1.GatewayName, subject)
	role.Labels, binding.Labels = Labels(), Labels()
	return []component.Object{role, binding}
}

func meta(b *v1alpha1.Bundle, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: b.Namespace, Labels: Labels()}
}

func service(b *v1alpha1.Bundle) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta(b, v1alpha1.GatewayName),
		Spec: corev1.ServiceSpec{
			Type:     b.Gateway.ServiceType,
			Selector: Labels(),
			Ports: []corev1.ServicePort{{
				Name: PortProxy, Protocol: corev1.ProtocolTCP, Port: b.Gateway.Port, TargetPort: intstr.FromInt32(b.Gateway.Port),
			}},
		},
	}
}

// networkPolicy allows clients from everywhere, because the gateway authenticates them, and
// the kubelet's probes.
func networkPolicy(b *v1alpha1.Bundle) *networkingv1.NetworkPolicy {
	port := func(n int32) networkingv1.NetworkPolicyPort {
		return networkingv1.NetworkPolicyPort{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(n))}
	}
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: meta(b, v1alpha1.GatewayName),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: Labels()},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				Ports: []networkingv1.NetworkPolicyPort{port(b.Gateway.Port), port(b.Gateway.HealthPort)},
			}},
		},
	}
}
