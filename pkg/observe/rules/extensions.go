// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
)

const groupExtensions = "Webhooks, APIServices and conversion"

func extensionRules() []Rule {
	needs := []string{reach}
	return []Rule{
		{ID: "FL-EXT-001", Group: groupExtensions, Phase: Always, Needs: needs, Title: "Admission webhooks have a ready backend", run: webhookBackends,
			Why: "A webhook without a backend blocks every request that it must admit, among them new Pods.",
			Fix: "kubectl -n <namespace> get endpointslices -l kubernetes.io/service-name=<service>"},
		{ID: "FL-EXT-002", Group: groupExtensions, Phase: Always, Needs: needs, Title: "APIServices are available", run: apiServices,
			Why: "A group that does not answer breaks discovery, garbage collection and the deletion of namespaces. Each reason of kube-apiserver's is explained, with what to do.",
			Fix: "kubectl describe apiservice <name>   # its condition Available has the reason"},
		{ID: "FL-EXT-003", Group: groupExtensions, Phase: Always, Needs: needs, Title: "Conversion webhooks have a ready backend", run: conversionBackends,
			Why: "Without it no object of that kind can be read or written in another version than it is stored in, and garbage collection stops.",
			Fix: "kubectl -n <namespace> get endpointslices -l kubernetes.io/service-name=<service>"},
		{ID: "FL-EXT-004", Group: groupExtensions, Phase: Always, Needs: needs, Title: "Stored versions of kinds with a conversion webhook are current", run: storedVersions,
			Why: "Objects stored in an old version can be read only while the webhook, and with it the tunnel, works.",
			Fix: "fairlead crd migrate <name>"},
		{ID: "FL-EXT-005", Group: groupExtensions, Phase: Always, Needs: needs, Title: "Versions with different schemas have a conversion webhook", run: noConversion,
			Why: "With strategy None the API server only changes the apiVersion, and drops fields that the other schema does not have.",
			Fix: "spec.conversion.strategy: Webhook   # with the webhook that the kind's author ships"},
		{ID: "FL-EXT-006", Group: groupExtensions, Phase: After, Needs: needs, Title: "No webhook keeps agents from coming back", run: agentDeadlock,
			Why: "A webhook that is called through the tunnel and must admit the agents' Pods keeps them away once all agents are gone.",
			Fix: "Exclude the agents' namespace in its namespaceSelector: {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}"},
		{ID: "FL-EXT-007", Group: groupExtensions, Phase: Always, Needs: needs, Title: "NetworkPolicies let the API server's calls in", run: ingressPolicies,
			Why: "Calls through the tunnel come from agents' addresses. A policy that allows those of the control plane alone drops them.",
			Fix: "Allow the port from everywhere, or from Pods with label k8s-app: konnectivity-agent in kube-system."},
		{ID: "FL-EXT-008", Group: groupExtensions, Phase: Always, Needs: needs, Title: "Services that the API server calls have the port that is named", run: servicePorts,
			Why: "The API server cannot call a port that the Service does not have.",
			Fix: "kubectl -n <namespace> get service <name> -o yaml"},
	}
}

// behind judges the Service behind something; nil means that it is fine.
func behind(s *observe.Snapshot, ref *observe.ServiceRef) (string, string) {
	state := s.Services.Value[ref.Key()]
	switch {
	case !state.Exists:
		return "Service " + ref.Key().String() + " does not exist", fmt.Sprintf("kubectl -n %s get services", ref.Namespace)
	case state.External:
		return "", ""
	case state.Ready == 0:
		return "Service " + ref.Key().String() + " has no ready endpoint", fmt.Sprintf("kubectl -n %s get endpointslices -l kubernetes.io/service-name=%s", ref.Namespace, ref.Name)
	}
	return "", ""
}

func webhookBackends(s *observe.Snapshot) ([]Finding, error) {
	if err := s.Services.Err; err != nil {
		return nil, err
	}
	var out []Finding
	for _, w := range s.Webhooks() {
		if problem, fix := behind(s, w.Service); problem != "" {
			out = append(out, Finding{Object: w.Owner, Message: "webhook " + w.Name + ": " + problem, Fix: fix, Warning: !w.Blocking})
		}
	}
	return out, firstError(s.Mutating.Err, s.Validating.Err)
}

func conversionBackends(s *observe.Snapshot) ([]Finding, error) {
	all, err := s.CRDs.Get()
	if err != nil {
		return nil, err
	}
	if s.Services.Err != nil {
		return nil, s.Services.Err
	}
	var out []Finding
	for _, d := range all {
		if d.Strategy != "Webhook" || d.Service == nil {
			continue
		}
		if problem, fix := behind(s, d.Service); problem != "" {
			out = append(out, Finding{Object: "CustomResourceDefinition " + d.Name, Message: "conversion webhook: " + problem, Fix: fix})
		}
	}
	return out, nil
}

func storedVersions(s *observe.Snapshot) ([]Finding, error) {
	all, err := s.CRDs.Get()
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, d := range all {
		current := slices.IndexFunc(d.Versions, func(v observe.CRDVersion) bool { return v.Storage })
		for _, stored := range d.Stored {
			known := slices.ContainsFunc(d.Versions, func(v observe.CRDVersion) bool { return v.Name == stored })
			switch {
			case !known:
				out = append(out, Finding{Object: "CustomResourceDefinition " + d.Name, Message: "objects may be stored in version " + stored + ", which it no longer has: they cannot be read"})
			case d.Strategy == "Webhook" && d.Service != nil && current >= 0 && d.Versions[current].Name != stored:
				out = append(out, Finding{Object: "CustomResourceDefinition " + d.Name, Warning: true,
					Message: fmt.Sprintf("objects may be stored in version %s, and only the webhook in Service %s can convert them to %s", stored, d.Service.Key(), d.Versions[current].Name),
					Fix:     "fairlead crd migrate " + d.Name})
			}
		}
	}
	return out, nil
}

func noConversion(s *observe.Snapshot) ([]Finding, error) {
	all, err := s.CRDs.Get()
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, d := range all {
		if d.Strategy == "Webhook" {
			continue
		}
		schema := ""
		for _, v := range d.Versions {
			switch {
			case !v.Served && !v.Storage:
			case schema == "":
				schema = v.Schema
			case v.Schema != schema:
				out = append(out, Finding{Object: "CustomResourceDefinition " + d.Name, Message: "its versions have different schemas, and spec.conversion.strategy is None", Warning: true})
			}
			if len(out) > 0 && out[len(out)-1].Object == "CustomResourceDefinition "+d.Name {
				break
			}
		}
	}
	return out, nil
}

// matchesPods reports whether a webhook is called for new Pods.
func matchesPods(w observe.Webhook) bool {
	return slices.ContainsFunc(w.Rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		create := slices.ContainsFunc(r.Operations, func(o admissionregistrationv1.OperationType) bool {
			return o == admissionregistrationv1.Create || o == admissionregistrationv1.OperationAll
		})
		return create && anyOf(r.APIGroups, "") && (anyOf(r.Resources, "pods") || slices.Contains(r.Resources, "*/*"))
	})
}

func agentDeadlock(s *observe.Snapshot) ([]Finding, error) {
	_, agents, err := tunnel(s)
	if err != nil {
		return nil, err
	}
	if len(agents) == 0 || agents[0].Pod == nil {
		return nil, check.Skip("agents are not Pods")
	}
	pod := agents[0].Pod
	var out []Finding
	for _, w := range s.Webhooks() {
		if w.Blocking && matchesPods(w) && w.Sees(s.LabelsOf(pod.Namespace), pod.Labels) {
			out = append(out, Finding{Object: w.Owner, Message: "webhook " + w.Name + " must admit Pods in " + pod.Namespace + ", and answers only through the tunnel", Warning: true})
		}
	}
	return out, firstError(s.Mutating.Err, s.Validating.Err, s.Namespaces.Err)
}

func servicePorts(s *observe.Snapshot) ([]Finding, error) {
	if err := s.Services.Err; err != nil {
		return nil, err
	}
	var out []Finding
	for _, ref := range s.Backends() {
		state := s.Services.Value[ref.Key()]
		if state.Exists && !state.External && !slices.Contains(state.Ports, ref.Port) {
			out = append(out, Finding{Object: "Service " + ref.Key().String(), Message: fmt.Sprintf("the API server is to call its port %d, and it has %v", ref.Port, state.Ports),
				Fix: fmt.Sprintf("kubectl -n %s get service %s -o yaml", ref.Namespace, ref.Name)})
		}
	}
	return out, firstError(s.Mutating.Err, s.Validating.Err, s.APIServices.Err, s.CRDs.Err)
}
