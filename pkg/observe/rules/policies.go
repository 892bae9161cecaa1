// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
)

func ingressPolicies(s *observe.Snapshot) ([]Finding, error) {
	policies, err := s.Policies.Get()
	if err != nil {
		return nil, err
	}
	if s.Services.Err != nil {
		return nil, s.Services.Err
	}
	agents := observe.Of(s.Programs.Value, check.RoleAgent)
	var out []Finding
	for _, ref := range s.Backends() {
		state := s.Services.Value[ref.Key()]
		if state.PodLabels == nil {
			continue
		}
		var selecting []string
		open := false
		for i := range policies {
			p := &policies[i]
			if p.Namespace != ref.Namespace || !matches(&p.Spec.PodSelector, state.PodLabels) || !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
				continue
			}
			selecting = append(selecting, p.Name)
			open = open || slices.ContainsFunc(p.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
				return opensPort(r, state, ref.Port) && letsAgentsIn(s, r, p.Namespace, agents)
			})
		}
		if len(selecting) > 0 && !open {
			out = append(out, Finding{Object: "NetworkPolicy " + ref.Namespace + "/" + selecting[0], Warning: true,
				Message: "it limits who connects to the Pods of Service " + ref.Key().String() + ", which the API server calls through agents",
				Fix:     fmt.Sprintf("kubectl -n %s describe networkpolicy %s", ref.Namespace, selecting[0])})
		}
	}
	return out, nil
}

func matches(selector *metav1.LabelSelector, set map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(set))
}

// opensPort reports whether a rule is for a port of the Pods behind a Service's port. It is true if these are unknown.
func opensPort(r networkingv1.NetworkPolicyIngressRule, state observe.ServiceState, port int32) bool {
	targets := state.Targets[port]
	if len(r.Ports) == 0 || len(targets) == 0 {
		return true
	}
	return slices.ContainsFunc(r.Ports, func(p networkingv1.NetworkPolicyPort) bool {
		if ptr.Deref(p.Protocol, corev1.ProtocolTCP) != corev1.ProtocolTCP {
			return false
		}
		return p.Port == nil || slices.ContainsFunc(targets, func(target int32) bool {
			if p.Port.Type == intstr.String {
				return state.PodPorts[p.Port.StrVal] == target
			}
			return p.Port.IntVal == target || p.EndPort != nil && p.Port.IntVal <= target && target <= *p.EndPort
		})
	})
}

// letsAgentsIn is true for rules from everywhere, from agents, or from blocks of addresses, of which it cannot tell whether agents are in. Of agents
// on the host network or of processes, no labels are known to the network: they may be in any namespace that a rule names.
func letsAgentsIn(s *observe.Snapshot, r networkingv1.NetworkPolicyIngressRule, namespace string, agents []observe.Program) bool {
	if len(r.From) == 0 {
		return true
	}
	return slices.ContainsFunc(r.From, func(p networkingv1.NetworkPolicyPeer) bool {
		if p.IPBlock != nil {
			return true
		}
		if len(agents) == 0 {
			return p.NamespaceSelector != nil
		}
		return slices.ContainsFunc(agents, func(a observe.Program) bool {
			if a.Pod == nil || a.Pod.Spec.HostNetwork {
				return p.NamespaceSelector != nil
			}
			inNamespace := a.Pod.Namespace == namespace
			if p.NamespaceSelector != nil && s.Namespaces.Err != nil {
				return true // which namespaces it selects is unknown
			}
			if p.NamespaceSelector != nil {
				inNamespace = matches(p.NamespaceSelector, s.LabelsOf(a.Pod.Namespace))
			}
			return inNamespace && (p.PodSelector == nil || matches(p.PodSelector, a.Pod.Labels))
		})
	})
}
