// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

// TestIngressPolicies proves that a policy in front of a backend lets the API server's calls in if it allows agents, by their labels in its own or
// another namespace, on the port of the backend's Pods; what the check gives as its fix is one of these.
func TestIngressPolicies(t *testing.T) {
	agents := &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "konnectivity-agent"}}
	others := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	inSystem := &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "kube-system"}}
	inShop := &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "shop"}}
	from := func(pods, namespaces *metav1.LabelSelector) []networkingv1.NetworkPolicyPeer {
		return []networkingv1.NetworkPolicyPeer{{PodSelector: pods, NamespaceSelector: namespaces}}
	}
	port := func(p intstr.IntOrString, end *int32) []networkingv1.NetworkPolicyPort {
		return []networkingv1.NetworkPolicyPort{{Port: &p, EndPort: end}}
	}
	for name, tc := range map[string]struct {
		namespace string
		rule      networkingv1.NetworkPolicyIngressRule
		want      rules.Status
	}{
		"agents beside it":             {"kube-system", networkingv1.NetworkPolicyIngressRule{From: from(agents, nil)}, rules.OK},
		"others beside it":             {"kube-system", networkingv1.NetworkPolicyIngressRule{From: from(others, nil)}, rules.Warning},
		"agents of its own namespace":  {"shop", networkingv1.NetworkPolicyIngressRule{From: from(agents, nil)}, rules.Warning},
		"agents of kube-system":        {"shop", networkingv1.NetworkPolicyIngressRule{From: from(agents, inSystem)}, rules.OK},
		"all of kube-system":           {"shop", networkingv1.NetworkPolicyIngressRule{From: from(nil, inSystem)}, rules.OK},
		"others of kube-system":        {"shop", networkingv1.NetworkPolicyIngressRule{From: from(others, inSystem)}, rules.Warning},
		"all of shop":                  {"shop", networkingv1.NetworkPolicyIngressRule{From: from(nil, inShop)}, rules.Warning},
		"all namespaces":               {"shop", networkingv1.NetworkPolicyIngressRule{From: from(nil, &metav1.LabelSelector{})}, rules.OK},
		"everyone, the port":           {"shop", networkingv1.NetworkPolicyIngressRule{Ports: port(intstr.FromInt32(8443), nil)}, rules.OK},
		"everyone, a range":            {"shop", networkingv1.NetworkPolicyIngressRule{Ports: port(intstr.FromInt32(8000), ptr.To(int32(9000)))}, rules.OK},
		"everyone, the port's name":    {"shop", networkingv1.NetworkPolicyIngressRule{Ports: port(intstr.FromString("https"), nil)}, rules.OK},
		"everyone, another name":       {"shop", networkingv1.NetworkPolicyIngressRule{Ports: port(intstr.FromString("metrics"), nil)}, rules.Warning},
		"everyone, the Service's port": {"shop", networkingv1.NetworkPolicyIngressRule{Ports: port(intstr.FromInt32(443), nil)}, rules.Warning},
		"everyone, UDP":                {"shop", networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.ProtocolUDP)}}}, rules.Warning},
		"agents, another port":         {"shop", networkingv1.NetworkPolicyIngressRule{From: from(agents, inSystem), Ports: port(intstr.FromInt32(9090), nil)}, rules.Warning},
	} {
		w := healthy(t)
		// All that the API server calls is this one Service.
		ref := &observe.ServiceRef{Namespace: tc.namespace, Name: "hook", Port: 443}
		w.Validating.Value, w.CRDs.Value, w.APIServices.Value[0].Service = nil, nil, ref
		w.Services = observe.Known(map[types.NamespacedName]observe.ServiceState{ref.Key(): {Exists: true, Ports: []int32{443}, Ready: 1, PodLabels: map[string]string{"app": "hook"},
			Targets: map[int32][]int32{443: {8443}}, PodPorts: map[string]int32{"https": 8443, "metrics": 9090}}})
		p := policy(tc.namespace, networkingv1.PolicyTypeIngress)
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{tc.rule}
		w.Policies = observe.Known([]networkingv1.NetworkPolicy{p})
		if r := only(w, "FL-EXT-007"); r.Status != tc.want {
			t.Errorf("%s: %+v, want %s", name, r, tc.want)
		}
	}
}
