// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
)

// nothingRuns judges a program of which no Pod or process is there.
func nothingRuns(s *observe.Snapshot, role check.Role) ([]Finding, error) {
	var out []Finding
	var skipped error
	for _, w := range s.Workloads(role) {
		f := Finding{Object: w.Object(), Fix: describe(w)}
		switch {
		case w.Current > 0:
			f.Message = fmt.Sprintf("all of its %d Pods have ended", w.Current)
		case role == check.RoleAgent:
			skipped = because(check.Skip("%s has no Pod: FL-KON-004 and FL-KON-027 say why", w.Object()), "FL-KON-004", "FL-KON-027")
			continue
		case w.Desired > 0:
			f.Message = strings.TrimSuffix("none of its Pods exists: "+w.Refusal, ": ")
		default:
			f.Message = "it has no Pod"
		}
		out = append(out, f)
	}
	if len(out) == 0 && skipped != nil {
		return nil, skipped
	}
	if len(out) == 0 {
		return nil, check.Skip("no Pod of it is visible: it runs outside of the cluster")
	}
	return out, nil
}

func describe(w observe.Workload) string {
	return fmt.Sprintf("kubectl -n %s describe %s %s", w.Namespace, strings.ToLower(w.Kind), w.Name)
}

func agentsPlaced(s *observe.Snapshot) ([]Finding, error) {
	_, agents, err := tunnel(s)
	if err != nil {
		return nil, err
	}
	var out []Finding
	var skipped error
	for _, w := range s.Workloads(check.RoleAgent) {
		if lacksAccount(s, w) {
			skipped = because(check.Skip("the ServiceAccount of %s does not exist: see FL-KON-027", w.Object()), "FL-KON-027")
			continue
		}
		f := Finding{Object: w.Object(), Fix: describe(w)}
		switch miss := w.Desired - w.Current; {
		case miss > 0:
			f.Message = fmt.Sprintf("%d of its %d Pods do not exist", miss, w.Desired)
			if w.Refusal != "" {
				f.Message += ": " + w.Refusal
			}
		case w.Desired == 0 && len(agents) == 0:
			f.Message = "it has no Pods, because no node fits its node selector, affinity and tolerations"
			if w.Kind == "Deployment" {
				f.Message = "it has 0 replicas"
			}
		default:
			continue
		}
		out = append(out, f)
	}
	if err := firstError(s.DaemonSets.Err, s.Deployments.Err); err != nil {
		return out, err
	}
	return out, skipped
}

func agentsConnected(s *observe.Snapshot) ([]Finding, error) {
	_, agents, err := tunnel(s)
	if err != nil {
		return nil, err
	}
	ready := 0
	for _, a := range agents {
		if a.Ready {
			ready++
		}
	}
	if len(s.ServerMetrics) == 0 {
		return nil, check.Skip("no server is visible, so its metrics are unknown")
	}
	var out []Finding
	var dark unread
	for _, name := range sorted(s.ServerMetrics) {
		m, err := s.ServerMetrics[name].Get()
		if err != nil {
			dark.add(name, err)
			continue
		}
		n, ok := observe.ConnectedAgents(m)
		if !ok {
			dark.add(name, fmt.Errorf("it has no metric %s", observe.MetricBackends))
			continue
		}
		if n < ready {
			out = append(out, Finding{Object: name, Message: fmt.Sprintf("connected agents: %d; ready agents: %d", n, ready), Warning: n > 0})
		}
	}
	return out, dark.err()
}
