// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

const (
	groupTunnel = "Tunnel"
	complete    = "FL-KON-001"
	serversRun  = "FL-KON-002"
	agentsRun   = "FL-KON-003"
	connected   = "FL-KON-005"
)

func tunnelRules() []Rule {
	return []Rule{
		{ID: complete, Group: groupTunnel, Phase: After, Needs: []string{reach}, Title: "API server, servers and agents of the tunnel are all there", run: tunnelComplete,
			Why: "kube-apiserver with an egress selector reaches no node without a server and agents. Agents without it do nothing.",
			Fix: "fairlead controlplane install -f bundle.yaml   # on every control plane node; fairlead install -f bundle.yaml   # once"},
		{ID: serversRun, Group: groupTunnel, Phase: After, Needs: []string{reach, complete}, Title: "Servers are ready", run: running(check.RoleServer),
			Why: "The kube-apiserver next to a server that does not run reaches no node.",
			Fix: "kubectl -n kube-system logs -l k8s-app=konnectivity-server --tail 20"},
		{ID: agentsRun, Group: groupTunnel, Phase: After, Needs: []string{reach, complete}, Title: "Agents are ready", run: running(check.RoleAgent),
			Why: "Each node without an agent leaves fewer ways into the cluster; without any agent, logs, exec, webhooks and aggregated APIs fail.",
			Fix: "kubectl -n kube-system logs -l k8s-app=konnectivity-agent --tail 20"},
		{ID: "FL-KON-004", Group: groupTunnel, Phase: After, Needs: []string{reach, complete}, Title: "Every node that should have an agent has one", run: agentsPlaced,
			Why: "Agents that cannot be scheduled, because of taints, quotas or policies, are missing without a trace in their logs.",
			Fix: "kubectl -n kube-system describe daemonset konnectivity-agent"},
		{ID: connected, Group: groupTunnel, Phase: After, Needs: []string{reach, complete, serversRun, agentsRun}, Title: "Every ready agent is connected to every server", run: agentsConnected,
			Why: "A kube-apiserver whose server has fewer agents has less reserve, and with none it reaches no node.",
			Fix: "kubectl -n kube-system logs -l k8s-app=konnectivity-agent --tail 20 | grep -i connect"},
		{ID: "FL-KON-006", Group: groupTunnel, Phase: After, Needs: []string{reach, complete}, NotIf: []string{serversRun, agentsRun, connected}, Title: "The API server reaches every kubelet", run: kubeletsReached,
			Why: "Logs, exec and port-forward of Pods on these nodes fail.",
			Fix: "kubectl get --raw /api/v1/nodes/<name>/proxy/healthz"},
		{ID: "FL-KON-007", Group: groupTunnel, Phase: After, Needs: []string{reach, complete}, Title: "There are as many servers as agents look for", run: serverCount,
			Why: "Agents stop looking for servers at the count. A server beyond it has no agents, and its kube-apiserver reaches no node.",
			Fix: "Set konnectivity.server.count to the number of control plane nodes, or konnectivity.leaseCounting: true."},
		{ID: "FL-KON-008", Group: groupTunnel, Phase: After, Needs: []string{reach, complete}, Title: "The servers' Leases are those of live servers", run: serverLeases,
			Why: "Agents that count Leases look for as many servers as there are valid Leases.",
			Fix: "kubectl -n <namespace> get leases -l k8s-app=konnectivity-server"},
		{ID: "FL-KON-009", Group: groupTunnel, Phase: After, Needs: []string{reach, complete}, Title: "All API servers use the tunnel", run: allUseTunnel,
			Why: "An API server without an egress selector dials nodes directly. Where that is impossible, calls fail now and then.",
			Fix: "fairlead controlplane install -f bundle.yaml   # on that node"},
		{ID: "FL-KON-010", Group: groupTunnel, Phase: After, Needs: []string{reach, complete}, Title: "Dials through the tunnel succeed", run: dialsSucceed,
			Why: "Each failed dial is a failed call of logs, exec, a webhook or an aggregated API.",
			Fix: "kubectl -n kube-system logs -l k8s-app=konnectivity-server --tail 50 | grep -i dial"},
		{ID: "FL-KON-011", Group: groupTunnel, Phase: After, Needs: []string{reach, complete}, NotIf: []string{serversRun}, Title: "Servers refuse no connections", run: turnedAway,
			Why: "A server out of file descriptors or memory ends or refuses connections.",
			Fix: "Raise the limit of open files of the server, or konnectivity.server.resources; docs/tunnel.md lists the limits."},
		{ID: "FL-KON-012", Group: groupTunnel, Phase: After, Needs: []string{reach, complete}, Title: "Programs of the tunnel do not restart repeatedly", run: restarts,
			Why: "Each restart of a server or an agent cuts the connections through it.",
			Fix: "kubectl -n <namespace> logs <pod> --previous"},
		{ID: "FL-KON-013", Group: groupTunnel, Phase: After, Needs: []string{reach, complete}, Title: "Images are for the architecture of their nodes", run: architecture,
			Why: "A program of another architecture never starts: exec format error.",
			Fix: "Use a multi-architecture image, or set a nodeSelector for kubernetes.io/arch."},
	}
}

// tunnel returns the programs of the tunnel, and skips if nothing of one is in the cluster.
func tunnel(s *observe.Snapshot) (servers, agents []observe.Program, err error) { return s.Tunnel() }

func hasEgress(args []string) bool {
	return observe.Program{Program: check.Program{Args: args}}.Has(apiserver.ConfigFlag)
}

func tunnelComplete(s *observe.Snapshot) ([]Finding, error) {
	servers, agents, err := tunnel(s)
	if err != nil {
		return nil, err
	}
	var out []Finding
	if s.APIServers.Err == nil && !s.UsesEgress() {
		out = append(out, Finding{Message: "no kube-apiserver has --" + apiserver.ConfigFlag + ", so nothing goes through the tunnel",
			Fix: "fairlead controlplane install -f bundle.yaml   # on every control plane node"})
	}
	// A workload without Pods is there: other checks say what keeps its Pods away.
	if len(servers) == 0 && s.APIServers.Err == nil && len(s.Workloads(check.RoleServer)) == 0 {
		out = append(out, Finding{Message: "no konnectivity-server runs, so kube-apiserver reaches no node",
			Fix: "fairlead controlplane install -f bundle.yaml   # on every control plane node"})
	}
	if len(agents) > 0 || len(s.Workloads(check.RoleAgent)) > 0 {
		return out, nil
	}
	switch answer, err := s.KubeletsAnswer(); {
	case err != nil:
		return out, err
	case !answer:
		out = append(out, Finding{Message: "no agent runs, so kube-apiserver reaches no node", Fix: "fairlead install -f bundle.yaml"})
	case len(out) > 0 || someDial(s): // that one may have asked them
		out = append(out, Finding{Message: "no agent runs", Fix: "fairlead install -f bundle.yaml"})
	default:
		return nil, check.Skip("no agent is visible, and kubelets answer: agents are no Pods")
	}
	return out, nil
}

// someDial reports whether a kube-apiserver is visible that uses no tunnel.
func someDial(s *observe.Snapshot) bool {
	for _, args := range s.APIServers.Value {
		if !hasEgress(args) {
			return true
		}
	}
	return false
}

func running(role check.Role) func(*observe.Snapshot) ([]Finding, error) {
	return func(s *observe.Snapshot) ([]Finding, error) {
		programs, err := s.Programs.Get()
		if err != nil {
			return nil, err
		}
		programs = observe.Of(programs, role)
		if len(programs) == 0 {
			return nothingRuns(s, role)
		}
		var out []Finding
		for _, p := range programs {
			if !p.Ready {
				out = append(out, Finding{Object: p.Name, Message: "it is not ready: " + p.Problem, Fix: logsOf(p)})
			}
		}
		// Without one of many agents, the others still reach all nodes.
		if role == check.RoleAgent && len(out) < len(programs) {
			for i := range out {
				out[i].Warning = true
			}
		}
		return out, nil
	}
}

// logsOf is the command that shows what a program says.
func logsOf(p observe.Program) string {
	if p.Pod == nil && p.LogFile != "" {
		return "tail -n 20 " + p.LogFile
	}
	if p.Pod == nil {
		return "fairlead status"
	}
	container := ""
	if len(p.Pod.Spec.Containers) > 1 {
		container = " -c " + p.Container.Name
	}
	return fmt.Sprintf("kubectl -n %s logs %s%s --tail 20", p.Pod.Namespace, p.Pod.Name, container)
}

// lastLogsOf is the command that shows what a program said before its last restart. A process keeps one log for all its starts.
func lastLogsOf(p observe.Program) string {
	if p.Pod == nil {
		return logsOf(p)
	}
	return logsOf(p) + " --previous"
}

func kubeletsReached(s *observe.Snapshot) ([]Finding, error) {
	if _, _, err := tunnel(s); err != nil {
		return nil, err
	}
	nodes, err := s.Nodes.Get()
	if err != nil {
		return nil, err
	}
	if len(s.Kubelets)+len(s.Unasked) == 0 && len(nodes) > 0 {
		return nil, because(check.Skip("no node is ready"), "FL-API-011")
	}
	var out []Finding
	var dark unread
	var skipped error
	for _, name := range sorted(s.Kubelets) {
		err := s.Kubelets[name]
		if err == nil {
			continue
		}
		text := err.Error()
		switch {
		case strings.Contains(text, "not allowed") || strings.Contains(text, "loopback"):
			skipped = check.Skip("the API server does not proxy to loopback addresses: %s", text)
		case observe.RefusesUser(err):
			dark.add("Node "+name, err)
		default:
			out = append(out, Finding{Object: "Node " + name, Message: "the API server gets no answer from its kubelet: " + text,
				Fix: fmt.Sprintf("kubectl get --raw /api/v1/nodes/%s/proxy/healthz", name)})
		}
	}
	if err := dark.err(); err != nil {
		return out, check.WithHint(err, "use a user with the right \"get nodes/proxy\"")
	}
	if n := len(s.Unasked); n > 0 {
		return out, fmt.Errorf("%d of %d kubelets were not asked: at most %d are, and within the time limit", n, n+len(s.Kubelets), observe.MaxKubelets)
	}
	return out, skipped
}

func allUseTunnel(s *observe.Snapshot) ([]Finding, error) {
	if _, _, err := tunnel(s); err != nil {
		return nil, err
	}
	all, err := s.APIServers.Get()
	if err != nil {
		return nil, err
	}
	if !s.UsesEgress() {
		return nil, check.Skip("no kube-apiserver uses it")
	}
	var out []Finding
	for _, name := range sorted(all) {
		if !hasEgress(all[name]) {
			out = append(out, Finding{Object: name, Message: "it has no --" + apiserver.ConfigFlag + ", and other API servers have"})
		}
	}
	return out, nil
}

// failedShare is how many of all dials may fail before that is worth a warning. Some always do: Pods end while they are called.
const failedShare = 0.1

func dialsSucceed(s *observe.Snapshot) ([]Finding, error) {
	if _, _, err := tunnel(s); err != nil {
		return nil, err
	}
	m, err := s.APIServerMetrics.Get()
	if err != nil {
		return nil, err
	}
	started, _ := m.Sum(observe.MetricEgressStart, nil)
	failed, _ := m.Sum(observe.MetricEgressFailed, nil)
	const few = 10
	if failed >= few && failed > failedShare*started {
		return warn("", fmt.Sprintf("%d of %d dials of this API server have failed (%d %%) since it started%s", int(failed), int(started), int(math.Round(100*failed/started)), ago(observe.ReadAt(s, s.APIServerMetrics), m)), ""), nil
	}
	return nil, nil
}

// ago says when the process of these metrics started, because its counters may show what is over.
func ago(now time.Time, m observe.Metrics) string {
	started, ok := m.Sum(observe.MetricStart, nil)
	if !ok || started <= 0 {
		return ""
	}
	return " " + duration.HumanDuration(now.Sub(time.Unix(int64(started), 0))) + " ago: run the check again later to see whether it goes on"
}

func turnedAway(s *observe.Snapshot) ([]Finding, error) {
	if _, _, err := tunnel(s); err != nil {
		return nil, err
	}
	var out []Finding
	var dark unread
	for _, name := range sorted(s.ServerMetrics) {
		m, err := s.ServerMetrics[name].Get()
		if err != nil {
			dark.add(name, err)
			continue
		}
		for metric, what := range map[string]string{
			observe.MetricTurnedAway: "refused for lack of file descriptors", observe.MetricEvictions: "closed because buffers were full",
		} {
			if n, _ := m.Sum(metric, nil); n > 0 {
				out = append(out, Finding{Object: name, Message: fmt.Sprintf("%d connections were %s since it started%s", int(n), what, ago(observe.ReadAt(s, s.ServerMetrics[name]), m)), Warning: true})
			}
		}
	}
	return out, dark.err()
}

func restarts(s *observe.Snapshot) ([]Finding, error) {
	servers, agents, err := tunnel(s)
	if err != nil {
		return nil, err
	}
	const many = 5
	var out []Finding
	for _, p := range slices.Concat(servers, agents) {
		if p.Restarts >= many {
			out = append(out, Finding{Object: p.Name, Message: "it was restarted " + progress.Count(p.Restarts, "time"), Warning: true, Fix: lastLogsOf(p)})
		}
	}
	return out, nil
}

func architecture(s *observe.Snapshot) ([]Finding, error) {
	programs, err := s.Programs.Get()
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, p := range programs {
		if last := s.Crashes[p.Key()]; strings.Contains(last, "exec format error") || strings.Contains(p.Problem, "exec format error") {
			out = append(out, Finding{Object: p.Name, Message: "image " + p.Image + " is for another architecture than Node " + p.Node + ": exec format error"})
			continue
		}
		arch := s.Architecture(p.Node)
		for _, other := range []string{"amd64", "arm64", "ppc64le", "s390x"} {
			if arch != "" && other != arch && strings.HasSuffix(observe.ImageTag(p.Image), "-"+other) {
				out = append(out, Finding{Object: p.Name, Message: fmt.Sprintf("image %s is for %s, Node %s has %s", p.Image, other, p.Node, arch)})
			}
		}
	}
	return out, nil
}
