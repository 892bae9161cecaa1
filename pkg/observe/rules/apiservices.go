// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/observe"
)

// apiServices explains each reason that kube-apiserver's condition Available has.
func apiServices(s *observe.Snapshot) ([]Finding, error) {
	all, err := s.APIServices.Get()
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, a := range all {
		if a.Available {
			continue
		}
		cause, fix := unavailable(s, a)
		text := "it is not available"
		if a.Reason != "" {
			text += " (" + a.Reason + ")"
		}
		text += ": " + cause
		if a.Message != "" {
			text += ": " + a.Message
		}
		out = append(out, Finding{Object: "APIService " + a.Name, Message: text, Fix: fix})
	}
	return out, nil
}

// unavailable returns the cause for a reason, and what to do. The reasons are those of
// k8s.io/kube-aggregator/pkg/controllers/status/remote.
func unavailable(s *observe.Snapshot, a observe.APIService) (cause, fix string) {
	svc := a.Service
	slices := fmt.Sprintf("kubectl -n %s get endpointslices -l kubernetes.io/service-name=%s", svc.Namespace, svc.Name)
	switch a.Reason {
	case "":
		return "kube-apiserver has not checked it yet", "kubectl get apiservice " + a.Name + " --watch   # wait for the first check, at most 30 s"
	case "ServiceNotFound":
		return "its Service does not exist, so its server is not installed, or was removed before the APIService",
			fmt.Sprintf("kubectl delete apiservice %s   # or install its server again, with Service %s", a.Name, svc.Key())
	case "ServicePortError":
		return fmt.Sprintf("its Service does not have port %d", svc.Port),
			fmt.Sprintf("kubectl patch apiservice %s --type=merge -p '{\"spec\":{\"service\":{\"port\":<port of Service %s>}}}'", a.Name, svc.Key())
	case "EndpointsNotFound":
		return "no EndpointSlice belongs to its Service: the Service has no selector and no EndpointSlice of your own, or kube-controller-manager does not run",
			slices + "   # none; then: kubectl -n " + svc.Namespace + " get service " + svc.Name + " -o yaml"
	case "MissingEndpoints":
		return "no Pod behind its Service is ready under the name of the port",
			fmt.Sprintf("%s && kubectl -n %s get service %s -o wide   # then describe the Pods of its selector, and compare the names of the ports", slices, svc.Namespace, svc.Name)
	case "ServiceAccessError", "EndpointsAccessError":
		return "kube-apiserver could not read its Service or EndpointSlices from its own cache, which is a fault of kube-apiserver and not of the API",
			"kubectl get --raw '/readyz?verbose' && kubectl -n kube-system logs -l component=kube-apiserver --tail=100"
	case "FailedDiscoveryCheck":
		return failedDiscovery(s, a)
	}
	return "kube-apiserver gives a reason that this version of fairlead does not know", "kubectl describe apiservice " + a.Name
}

// failedDiscovery explains why kube-apiserver gets no good answer from a server with ready endpoints.
func failedDiscovery(s *observe.Snapshot, a observe.APIService) (cause, fix string) {
	svc, has := a.Service, func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(a.Message, p) {
				return true
			}
		}
		return false
	}
	host := svc.Name + "." + svc.Namespace + ".svc"
	logs := fmt.Sprintf("kubectl -n %s logs service/%s --tail=50", svc.Namespace, svc.Name)
	ca := fmt.Sprintf("kubectl get apiservice %s -o jsonpath='{.spec.caBundle}' | base64 -d   # must have signed the server's certificate", a.Name)
	switch {
	case has("signed by unknown authority", "certificate signed by"):
		return "spec.caBundle has not signed the server's certificate", ca
	case has("has expired or is not yet valid"):
		return "the server's certificate has expired, or is not valid yet", "Renew the certificate of the server; " + logs
	case has("certificate is valid for", "doesn't contain any IP SANs", "relies on legacy Common Name", "not valid for any names"):
		return "the server's certificate is not for " + host, "Issue a certificate with the DNS name " + host
	case has("bad status from") && has(": 401", ": 403"):
		return "the server refuses kube-apiserver: it does not trust the front proxy's certificate, or may not review access",
			fmt.Sprintf("kubectl get clusterrolebindings,rolebindings -A -o wide | grep -E 'auth-delegator|extension-apiserver-authentication-reader'   # both must name the ServiceAccount of %s", svc.Key())
	case has("bad status from") && has(": 404"):
		return "the server does not serve the group and version of the APIService", fmt.Sprintf("kubectl delete apiservice %s   # or install a version of its server that has them", a.Name)
	case has("bad status from"):
		return "the server answers with an error", logs
	case has("connection refused"):
		return "nothing listens on the port of its Pods", logs
	}
	cause, fix = "kube-apiserver gets no answer from the server", logs+"   # then: NetworkPolicies, and whether kube-apiserver's host reaches the Pods"
	if s.UsesEgress() {
		cause += "; it connects through the tunnel"
		fix = "fairlead check --only 'FL-KON-*' && " + fix
	}
	return cause, fix
}
