// SPDX-License-Identifier: Apache-2.0

package monitoring

import "time"

// Series of two servers and an agent, which most tests use.
const (
	server1 = `{instance="cp1:8092",job="konnectivity-server"}`
	server2 = `{instance="cp2:8092",job="konnectivity-server"}`
	agent1  = `{instance="node1:8093",job="konnectivity-agent"}`
)

// Names of metrics that several alerts and dashboards use.
const (
	readyAgents  = "konnectivity_network_proxy_server_ready_backend_connections"
	byStrategy   = "konnectivity_network_proxy_server_ready_backends"
	knownServers = "konnectivity_network_proxy_agent_known_server_count"
	openServers  = "konnectivity_network_proxy_agent_open_server_connections"
)

// agentsOf counts the agents of each server: those of strategy default, which has each agent once; else those of the largest strategy; else the old
// gauge, which upstream's server sets to the number of the strategy that changed last.
const agentsOf = "(max without (proxy_strategy) (" + byStrategy + `{proxy_strategy="default"}` + ") or max without (proxy_strategy) (" + byStrategy + ") or " + readyAgents + ")"

// inCluster adds the label that tells clusters apart to the labels of a series.
func inCluster(name, labels string) string { return `{cluster="` + name + `",` + labels[1:] }

func on1(labels ...string) map[string]string {
	return labeled("cp1:8092", "konnectivity-server", labels)
}

func onAgent1(labels ...string) map[string]string {
	return labeled("node1:8093", "konnectivity-agent", labels)
}

func labeled(instance, job string, more []string) map[string]string {
	out := map[string]string{"instance": instance, "job": job}
	for i := 0; i+1 < len(more); i += 2 {
		out[more[i]] = more[i+1]
	}
	return out
}

// agentAlerts are about agents that are not connected as they should be.
func agentAlerts() []Alert { return append(countAlerts(), linkAlerts()...) }

// countAlerts are about the numbers of agents and servers.
func countAlerts() []Alert {
	return []Alert{
		{
			Name: "KonnectivityServerAbsent", Severity: Critical, For: 5 * time.Minute,
			Expr:    "absent(" + readyAgents + ") or count by (cluster) (" + openServers + ") unless count by (cluster) (" + readyAgents + ")",
			Summary: "Prometheus finds no konnectivity-server.",
			Fault:   []Series{{openServers + inCluster("a", agent1), "1x40"}, {openServers + inCluster("b", agent1), "1x40"}, {readyAgents + inCluster("b", server1), "1x40"}},
			Health:  []Series{{readyAgents + server1, "2x40"}, {openServers + agent1, "1x40"}},
			Fires:   []map[string]string{{"cluster": "a"}},
		},
		{
			Name: "KonnectivityServerGone", Severity: Warning, For: 5 * time.Minute,
			Expr:    "last_over_time(" + readyAgents + "[1h]) unless " + readyAgents,
			Summary: "Prometheus no longer finds konnectivity-server {{ $labels.instance }}.",
			Fault:   []Series{{readyAgents + server1, "2x40"}, {readyAgents + server2, "2x3 stale"}},
			Health:  []Series{{readyAgents + server1, "2x60"}, {readyAgents + server2, "2x10 stale 2x40"}},
			Fires:   []map[string]string{labeled("cp2:8092", "konnectivity-server", nil)},
		},
		{
			Name: "KonnectivityNoAgents", Severity: Critical, For: 2 * time.Minute,
			Expr:    agentsOf + " == 0",
			Summary: "No agent is connected to konnectivity-server {{ $labels.instance }}.",
			Fault:   []Series{{readyAgents + server1, "0x40"}, {readyAgents + server2, "2x40"}},
			Health: []Series{{readyAgents + server1, "2x10 0 2x40"}, {readyAgents + server2, "0x60"},
				{byStrategy + `{proxy_strategy="default",` + server2[1:], "2x60"}, {byStrategy + `{proxy_strategy="defaultRoute",` + server2[1:], "0x60"}},
			Fires: []map[string]string{on1()},
		},
		{
			Name: "KonnectivityAgentsUneven", Severity: Warning, For: 10 * time.Minute,
			Expr:    "max by (cluster, job) (" + agentsOf + ") > min by (cluster, job) (" + agentsOf + ")",
			Summary: "Some konnectivity-servers have fewer agents than others.",
			Fault: []Series{{byStrategy + `{proxy_strategy="default",` + server1[1:], "3x40"}, {byStrategy + `{proxy_strategy="default",` + server2[1:], "2x40"},
				{readyAgents + server1, "2x40"}, {readyAgents + server2, "2x40"}},
			Health: []Series{{byStrategy + `{proxy_strategy="default",` + server1[1:], "3x40"}, {byStrategy + `{proxy_strategy="default",` + server2[1:], "3x10 2x3 3x40"},
				{readyAgents + server1, "3x40"}, {readyAgents + server2, "1x40"}, {readyAgents + inCluster("b", server1), "1x40"}},
			Fires: []map[string]string{{"job": "konnectivity-server"}},
		},
		{
			Name: "KonnectivityAgentMissesServers", Severity: Warning, For: 5 * time.Minute,
			Expr:    openServers + " < " + knownServers + " or fairlead_tunnel_agent_missing_servers > 0",
			Summary: "konnectivity-agent {{ $labels.instance }} is not connected to all servers.",
			Fault:   []Series{{openServers + agent1, "1x40"}, {knownServers + agent1, "2x40"}},
			Health:  []Series{{openServers + agent1, "2x40"}, {knownServers + agent1, "2x40"}, {"fairlead_tunnel_agent_missing_servers" + agent1, "0x40"}},
			Fires:   []map[string]string{onAgent1()},
		},
		{
			Name: "KonnectivityServerCountMismatch", Severity: Warning, For: 15 * time.Minute,
			Expr:    "max by (cluster) (" + knownServers + ") != count by (cluster) (" + readyAgents + ")",
			Summary: "Agents know of another number of konnectivity-servers than Prometheus finds.",
			Fault:   []Series{{knownServers + agent1, "1x40"}, {readyAgents + server1, "2x40"}, {readyAgents + server2, "2x40"}},
			Health: []Series{{knownServers + agent1, "2x40"}, {readyAgents + server1, "2x40"}, {readyAgents + server2, "2x40"},
				{knownServers + inCluster("b", agent1), "1x40"}, {readyAgents + inCluster("b", server1), "1x40"}},
			Fires: []map[string]string{{}},
		},
	}
}

// linkAlerts are about agents that fail to connect, or that servers refuse.
func linkAlerts() []Alert {
	return []Alert{
		{
			Name: "KonnectivityAgentLinkFailures", Severity: Warning, For: 10 * time.Minute,
			Expr: "sum by (cluster, instance, job) (increase(konnectivity_network_proxy_agent_server_connection_failure_count[10m])) > 3" +
				" or sum by (cluster, instance, job) (increase(fairlead_tunnel_agent_connect_failures_total[10m])) > 3",
			Summary: "konnectivity-agent {{ $labels.instance }} keeps failing to connect to a server.",
			Fault:   []Series{{`konnectivity_network_proxy_agent_server_connection_failure_count{direction="from_server",` + agent1[1:], "0+1x40"}},
			Health: []Series{{`konnectivity_network_proxy_agent_server_connection_failure_count{direction="from_server",` + agent1[1:], "0x10 1x40"},
				{`fairlead_tunnel_agent_connect_failures_total{reason="refused",` + agent1[1:], "0x10 2x40"}},
			Fires: []map[string]string{onAgent1()},
		},
		{
			Name: "KonnectivityAgentsRefused", Severity: Warning, For: 5 * time.Minute, OwnMetrics: true,
			Expr:    `sum by (cluster, instance, job, reason) (increase(fairlead_tunnel_server_agents_refused_total{reason!="draining"}[10m])) > 3`,
			Summary: "konnectivity-server {{ $labels.instance }} refuses agents: {{ $labels.reason }}.",
			Fault:   []Series{{`fairlead_tunnel_server_agents_refused_total{reason="token",` + server1[1:], "0+2x40"}},
			Health: []Series{{`fairlead_tunnel_server_agents_refused_total{reason="token",` + server1[1:], "0x10 1x40"},
				{`fairlead_tunnel_server_agents_refused_total{reason="draining",` + server1[1:], "0+5x40"}},
			Fires: []map[string]string{on1("reason", "token")},
		},
		{
			Name: "KonnectivityTokenReviewsFail", Severity: Warning, For: 10 * time.Minute, OwnMetrics: true,
			Expr:    `sum by (cluster, instance, job) (increase(fairlead_tunnel_server_token_reviews_total{result="failed"}[15m])) > 0`,
			Summary: "konnectivity-server {{ $labels.instance }} cannot review the tokens of its agents.",
			Fault:   []Series{{`fairlead_tunnel_server_token_reviews_total{result="failed",` + server1[1:], "0+1x40"}},
			Health: []Series{{`fairlead_tunnel_server_token_reviews_total{result="failed",` + server1[1:], "3x40"},
				{`fairlead_tunnel_server_token_reviews_total{result="accepted",` + server1[1:], "0+2x40"}},
			Fires: []map[string]string{on1()},
		},
		{
			Name: "KonnectivityServersShareID", Severity: Warning, For: 0, OwnMetrics: true,
			Expr:    "increase(fairlead_tunnel_server_shared_id_total[15m]) > 0",
			Summary: "konnectivity-server {{ $labels.instance }} has the server ID of another server.",
			Fault:   []Series{{"fairlead_tunnel_server_shared_id_total" + server1, "0x5 1x40"}},
			Health:  []Series{{"fairlead_tunnel_server_shared_id_total" + server1, "0x40"}},
			Fires:   []map[string]string{on1()},
		},
	}
}
