// SPDX-License-Identifier: Apache-2.0

package monitoring

import "strings"

func replaceRate(expr, by string) string { return strings.ReplaceAll(expr, RateInterval, by) }

// rate is the sum of a counter's rate by labels.
func rate(series, by string) string {
	return "sum by (" + by + ") (rate(" + series + "[" + RateInterval + "]))"
}

// p99 is the 99th percentile of a histogram by labels.
func p99(histogram, by string) string { return p99Of(histogram, "", by) }

// p99Of is p99 of the series that a selector leaves.
func p99Of(histogram, selector, by string) string {
	return "histogram_quantile(0.99, sum by (le, " + by + ") (rate(" + histogram + "_bucket" + selector + "[" + RateInterval + "])))"
}

// slowPoints are the extension points whose plugins do the work of scheduling: a graph of all 12 of each scheduler cannot be read.
const slowPoints = `{extension_point=~"PreFilter|Filter|PostFilter|Score|Permit|PreBind|Bind"}`

// byInstance labels series by where they come from. In panels of both, ofServer and ofAgent tell them apart, and byJob where
// one query has both.
const (
	byInstance = "{{instance}}"
	ofServer   = "server " + byInstance
	ofAgent    = "agent " + byInstance
	byJob      = "{{job}} " + byInstance
)

func panel(title, unit string, queries ...Query) Panel {
	return Panel{Title: title, Unit: unit, Queries: queries}
}

// tunnelDashboard is for server, agents and what kube-apiserver sees of them. All panels but those of the last row also
// work for upstream's programs.
func tunnelDashboard() Dashboard {
	const (
		server = "konnectivity_network_proxy_server_"
		agent  = "konnectivity_network_proxy_agent_"
		egress = "apiserver_egress_dialer_"
	)
	return Dashboard{UID: "fairlead-tunnel", Title: "Konnectivity tunnel", Rows: []Row{
		{"Agents", []Panel{
			panel("Agents per server", "short", Query{agentsOf, byInstance}),
			panel("Servers per agent", "short", Query{openServers, byInstance + " connected"}, Query{knownServers, byInstance + " known"}),
			panel("Failed links", "ops", Query{rate(agent+"server_connection_failure_count", "instance, direction"), byInstance + " {{direction}}"}),
		}},
		{"Calls", []Panel{
			panel("Dials", "ops", Query{rate(server+`stream_packets_total{segment="to_agent",packet_type="DIAL_REQ"}`, "instance"), byInstance}),
			panel("Failed dials", "ops", Query{rate(server+"dial_failure_count", "instance, reason"), byInstance + " {{reason}}"}),
			panel("Time of a dial, 99%", "s", Query{p99(server+"dial_duration_seconds", "instance"), ofServer},
				Query{p99(agent+"dial_duration_seconds", "instance"), ofAgent}),
			panel("Open connections", "short", Query{server + "established_connections", ofServer}, Query{agent + "open_endpoint_connections", ofAgent}),
			panel("Dials without an answer", "short", Query{server + "pending_backend_dials", byInstance}),
			panel("Connections that wait for their receiver", "short", Query{server + "full_receive_channels", byInstance + " {{service_method}}"}),
		}},
		{"What kube-apiserver sees", []Panel{
			panel("Dials", "ops", Query{rate(egress+"dial_start_total", "instance, protocol, transport"), byInstance + " {{protocol}} {{transport}}"}),
			panel("Failed dials", "ops", Query{rate(egress+"dial_failure_count", "instance, stage"), byInstance + " {{stage}}"}),
			panel("Time of a dial, 99%", "s", Query{p99(egress+"dial_duration_seconds", "instance"), byInstance}),
		}},
		{"Processes", []Panel{
			panel("Memory", "bytes", Query{"process_resident_memory_bytes and on (instance, job) (" + readyAgents + " or " + openServers + ")", byJob}),
			panel("CPU", "percentunit", Query{"rate(process_cpu_seconds_total[" + RateInterval + "]) and on (instance, job) (" + readyAgents + " or " + openServers + ")", byJob}),
			panel("File descriptors", "short", Query{"process_open_fds and on (instance, job) (" + readyAgents + " or " + openServers + ")", byJob}),
		}},
		fairleadRow(),
	}}
}

// fairleadRow has the metrics that upstream's programs do not have.
func fairleadRow() Row {
	return Row{"Only with Fairlead's programs", []Panel{
		panel("Failed dials by kind", "ops", Query{rate("fairlead_tunnel_server_dial_errors_total", "instance, kind"), byInstance + " {{kind}}"}),
		panel("Refused agents", "ops", Query{rate("fairlead_tunnel_server_agents_refused_total", "instance, reason"), byInstance + " {{reason}}"}),
		panel("Links by protocol", "short", Query{"fairlead_tunnel_server_links", byInstance + " {{protocol}}"}),
		panel("Bytes in queues", "bytes", Query{"fairlead_tunnel_server_buffered_bytes", ofServer}, Query{"fairlead_tunnel_agent_buffered_bytes", ofAgent}),
		panel("Evicted connections", "ops", Query{rate("fairlead_tunnel_server_evictions_total", "instance, bound"), ofServer + " {{bound}}"},
			Query{rate("fairlead_tunnel_agent_evictions_total", "instance, bound"), ofAgent + " {{bound}}"}),
		panel("Time until certificates expire", "s", Query{"fairlead_tunnel_server_certificate_expiration_timestamp_seconds - time()", byInstance + " {{peer}}"}),
	}}
}

func schedulerDashboard() Dashboard {
	return Dashboard{UID: "fairlead-schedulers", Title: "Schedulers", Rows: []Row{
		{"Queues", []Panel{
			panel("Pending Pods", "short", Query{"sum by (job, queue) (scheduler_pending_pods)", "{{job}} {{queue}}"}),
			panel("Attempts", "ops", Query{rate("scheduler_schedule_attempts_total", "job, profile, result"), "{{job}} {{profile}} {{result}}"}),
			panel("Time of an attempt, 99%", "s", Query{p99("scheduler_scheduling_attempt_duration_seconds", "job"), "{{job}}"}),
		}},
		{"Replicas", []Panel{
			panel("Leaders", "short", Query{"max by (job, instance) (leader_election_master_status)", byJob}),
			panel("Time of a plugin's extension point, 99%", "s", Query{p99Of("scheduler_framework_extension_point_duration_seconds", slowPoints, "job, extension_point"), "{{job}} {{extension_point}}"}),
			panel("Goroutines", "short", Query{"go_goroutines and on (instance, job) scheduler_pending_pods", byJob}),
		}},
	}}
}

func waysInDashboard() Dashboard {
	return Dashboard{UID: "fairlead-ways-in", Title: "Ways in: proxy and SOCKS5", Rows: []Row{
		{"fairlead proxy", []Panel{
			panel("Requests", "ops", Query{rate("fairlead_proxy_requests_total", "instance, code"), byInstance + " {{code}}"}),
			panel("Refused requests", "ops", Query{rate("fairlead_proxy_refused_total", "instance, reason"), byInstance + " {{reason}}"}),
			panel("Time of a request, 99%", "s", Query{p99("fairlead_proxy_request_duration_seconds", "instance"), byInstance}),
		}},
		{"fairlead socks5", []Panel{
			panel("Open connections", "short", Query{"fairlead_socks5_open_connections", byInstance}),
			panel("Connections that ended", "ops", Query{rate("fairlead_socks5_connections_total", "instance, result"), byInstance + " {{result}}"}),
			panel("Time of a dial, 99%", "s", Query{p99("fairlead_socks5_dial_duration_seconds", "instance, kind"), byInstance + " {{kind}}"}),
		}},
	}}
}
