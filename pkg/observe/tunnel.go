// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/check"
)

// Tunnel returns the servers and agents of this cluster. The error is a check.Skip if the cluster has no tunnel of which anything is visible:
// kube-apiserver dials nodes itself, or through a tunnel whose agents are no Pods, as with k3s.
func (s *Snapshot) Tunnel() (servers, agents []Program, err error) {
	programs, err := s.Programs.Get()
	if err != nil {
		return nil, nil, err
	}
	servers, agents = Of(programs, check.RoleServer), Of(programs, check.RoleAgent)
	if len(agents)+len(s.Workloads(check.RoleAgent)) > 0 {
		return servers, agents, nil
	}
	egress := s.UsesEgress()
	visible := len(servers)+len(s.Workloads(check.RoleServer)) > 0
	switch {
	case !visible && !egress:
		return nil, nil, check.Skip("there is no tunnel in this cluster")
	case visible && (egress || s.serversBeside(servers)):
		return servers, agents, nil
	}
	switch answer, err := s.KubeletsAnswer(); {
	case err != nil:
		return nil, nil, err
	case answer && visible:
		return nil, nil, check.Skip("the servers of tunnels here are not for this cluster: kube-apiserver reaches kubelets without them")
	case answer:
		return nil, nil, check.Skip("no program of a tunnel is visible, and kubelets answer: kube-apiserver dials nodes itself, or through a tunnel whose agents are no Pods")
	}
	return servers, agents, nil
}

// serversBeside reports whether a server is where those of this cluster's kube-apiservers are: as a static Pod or DaemonSet of the control plane,
// or in the bundle's namespace.
func (s *Snapshot) serversBeside(servers []Program) bool {
	own := []string{metav1.NamespaceSystem, s.Names.Namespace}
	return slices.ContainsFunc(servers, func(p Program) bool {
		return p.Pod == nil || p.Pod.Spec.HostNetwork || slices.Contains(own, p.Pod.Namespace)
	}) || slices.ContainsFunc(s.Workloads(check.RoleServer), func(w Workload) bool {
		return w.Template.Spec.HostNetwork || slices.Contains(own, w.Namespace)
	})
}

// UsesEgress reports whether any API server that shows itself has an egress selector.
func (s *Snapshot) UsesEgress() bool {
	for _, args := range s.APIServers.Value {
		if (Program{Program: check.Program{Args: args}}).Has(apiserver.ConfigFlag) {
			return true
		}
	}
	_, dialed := s.APIServerMetrics.Value.Sum(MetricEgressStart, nil)
	return dialed
}

// KubeletsAnswer reports whether the API server gets an answer from any kubelet. The error says why that is unknown.
func (s *Snapshot) KubeletsAnswer() (bool, error) {
	var refused error
	for _, node := range sortedKeys(s.Kubelets) {
		switch err := s.Kubelets[node]; {
		case err == nil || refusedByKubelet(err):
			return true, nil
		case RefusesUser(err):
			refused = err
		}
	}
	if len(s.Kubelets) == 0 && s.Nodes.Err != nil {
		return false, fmt.Errorf("whether kubelets answer the API server is unknown: %w", s.Nodes.Err)
	}
	if len(s.Kubelets) == 0 && len(s.Unasked) > 0 {
		return false, errors.New("whether kubelets answer the API server is unknown: there was no time to ask one")
	}
	if refused != nil {
		return false, check.WithHint(fmt.Errorf("whether kubelets answer the API server is unknown: %w", refused), "use a user with the right \"get nodes/proxy\"")
	}
	return false, nil
}

// RefusesUser reports whether the API server refused a call to a kubelet itself. A kubelet that refuses kube-apiserver has the same code, but no
// Status.
func RefusesUser(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// refusedByKubelet reports whether a kubelet answered, and refused kube-apiserver.
func refusedByKubelet(err error) bool {
	code := apierrors.ReasonForError(err)
	return apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) && (code == metav1.StatusReasonUnauthorized || code == metav1.StatusReasonForbidden)
}

// hosted are the namespaces of control planes that run as Pods for other clusters, as Kamaji and HyperShift have them: their tunnels are not
// this cluster's.
func (s *Snapshot) hosted() []string {
	var out []string
	add := func(namespace string) {
		if namespace != metav1.NamespaceSystem && !slices.Contains(out, namespace) {
			out = append(out, namespace)
		}
	}
	for i := range s.Deployments.Value {
		if d := &s.Deployments.Value[i]; s.runs(d.Namespace, &d.Spec.Template, check.RoleAPIServer) {
			add(d.Namespace)
		}
	}
	for i := range s.DaemonSets.Value {
		if d := &s.DaemonSets.Value[i]; s.runs(d.Namespace, &d.Spec.Template, check.RoleAPIServer) {
			add(d.Namespace)
		}
	}
	for i := range s.Programs.Value {
		if p := &s.Programs.Value[i]; p.Hosted && p.Role == check.RoleAPIServer {
			add(p.Pod.Namespace)
		}
	}
	return out
}

// markHosted marks the programs in namespaces that have a kube-apiserver, other than kube-system.
func markHosted(programs []Program) []Program {
	var spaces []string
	for _, p := range programs {
		if p.Role == check.RoleAPIServer && p.Pod.Namespace != metav1.NamespaceSystem {
			spaces = append(spaces, p.Pod.Namespace)
		}
	}
	for i := range programs {
		programs[i].Hosted = slices.Contains(spaces, programs[i].Pod.Namespace)
	}
	return programs
}
