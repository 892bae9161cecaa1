// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/install"
	"github.com/fairlead-dev/fairlead/pkg/observe"
)

const groupBefore = "Before an installation"

func beforeRules() []Rule {
	preflight := func(id, title, finding, why string) Rule {
		return Rule{ID: id, Group: groupBefore, Phase: Before, Needs: []string{reach}, Title: title, Why: why,
			Fix: "fairlead install -f bundle.yaml --dry-run=server", run: found(finding)}
	}
	return []Rule{
		{ID: "FL-PRE-001", Group: groupBefore, Phase: Before, Needs: []string{reach}, Title: "This user may install the bundle", run: installRights,
			Why: "An installation without these rights stops before its first change.",
			Fix: "Use the kubeconfig of a cluster administrator."},
		preflight("FL-PRE-002", "The bundle's programs support this version of Kubernetes", install.FindingVersion,
			"A scheduler must not be newer than the API server, nor more than one minor version older."),
		preflight("FL-PRE-003", "The control plane's flags can be changed", install.FindingManaged,
			"A tunnel needs an egress selector on kube-apiserver, which no managed control plane lets you set."),
		preflight("FL-PRE-004", "The cluster has nodes", install.FindingNoNodes, "Without nodes nothing rolls out."),
		preflight("FL-PRE-005", "The nodes are not simulated", install.FindingSimulated, "Simulated nodes run no programs."),
		preflight("FL-PRE-006", "The server count of the bundle matches the API servers", install.FindingCount,
			"Agents connect to as many servers as the count says. An API server whose server has no agents reaches no node."),
		preflight("FL-PRE-007", "The second scheduler's Lease is free", install.FindingLease, "Two schedulers with one Lease take turns."),
		preflight("FL-PRE-008", "The scheduler's partition has nodes", install.FindingPartition, "Without them every Pod of the second scheduler stays Pending."),
		preflight("FL-PRE-009", "The installation removes nothing that is in use", install.FindingInUse, "Without agents, kube-apiserver reaches no node."),
		{ID: "FL-PRE-010", Group: groupBefore, Phase: Before, Needs: []string{reach, "FL-PRE-001"}, Title: "The bundle's objects can be applied", run: blocked,
			Why: "An object of the same name that belongs to another owner, or that the API server refuses, stops the installation before its first change.",
			Fix: "fairlead diff -f bundle.yaml"},
		{ID: "FL-PRE-011", Group: groupBefore, Phase: Before, Needs: []string{reach}, Title: "No webhook keeps the first agents from starting", run: firstAgents,
			Why: "From the moment at which kube-apiserver uses the tunnel until the first agent connects, no webhook behind a Service answers.",
			Fix: "fairlead controlplane install -f bundle.yaml --server-only; fairlead install -f bundle.yaml; fairlead controlplane install -f bundle.yaml"},
		{ID: "FL-PRE-012", Group: groupBefore, Phase: Before, Needs: []string{reach}, Title: "No other tunnel is in the cluster", run: otherTunnel,
			Why: "Two tunnels cannot share kube-apiserver's one egress selection, and two servers cannot share ports on one host.",
			Fix: "Remove the other tunnel first, or set konnectivity.enabled: false."},
	}
}

func found(id string) func(*observe.Snapshot) ([]Finding, error) {
	return func(s *observe.Snapshot) ([]Finding, error) {
		all, err := s.Preflight.Get()
		if err != nil {
			return nil, err
		}
		var out []Finding
		for _, f := range all {
			if f.ID == id {
				out = append(out, Finding{Message: f.Message, Fix: f.Hint, Warning: f.Warning})
			}
		}
		return out, nil
	}
}

func installRights(s *observe.Snapshot) ([]Finding, error) {
	missing, err := s.Missing.Get()
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, right := range missing {
		out = append(out, Finding{Message: "this user may not " + right})
	}
	return out, nil
}

func blocked(s *observe.Snapshot) ([]Finding, error) {
	problems, err := s.Blocked.Get()
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, p := range problems {
		out = append(out, Finding{Object: p.Object.String(), Message: p.Message, Fix: p.Hint})
	}
	return out, nil
}

func firstAgents(s *observe.Snapshot) ([]Finding, error) {
	if !ptr.Deref(s.Bundle.Konnectivity.Enabled, true) {
		return nil, check.Skip("the bundle has konnectivity.enabled: false")
	}
	programs, err := s.Programs.Get()
	if err != nil {
		return nil, err
	}
	if len(observe.Of(programs, check.RoleAgent)) > 0 {
		return nil, check.Skip("the cluster has agents already")
	}
	labels := konnectivity.Agent(s.Bundle).PodLabels
	var out []Finding
	for _, w := range s.Webhooks() {
		if w.Blocking && matchesPods(w) && w.Sees(s.LabelsOf(s.Bundle.Namespace), labels) {
			out = append(out, Finding{Object: w.Owner, Warning: true, Message: "its webhook " + w.Name + " must answer before a Pod of an agent is created, and it answers only through the tunnel"})
		}
	}
	return out, firstError(s.Mutating.Err, s.Validating.Err, s.Namespaces.Err)
}

func otherTunnel(s *observe.Snapshot) ([]Finding, error) {
	programs, err := s.Programs.Get()
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, p := range programs {
		if (p.Role == check.RoleServer || p.Role == check.RoleAgent) && !p.Hosted && !ours(p) {
			out = append(out, Finding{Object: p.Name, Message: "it belongs to a tunnel that this bundle did not install (image " + p.Image + ")"})
		}
	}
	return out, nil
}

// ours recognizes Fairlead's programs: processes of a local cluster, and images by the last part of their names.
func ours(p observe.Program) bool {
	return p.Pod == nil || v1alpha1.IsFairlead(p.Image)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
