// SPDX-License-Identifier: Apache-2.0

package monitoring

import "time"

// limitAlerts are about limits that are near or reached: memory, descriptors, validity of certificates.
func limitAlerts() []Alert {
	const (
		evictions = "fairlead_tunnel_server_evictions_total"
		turned    = "fairlead_tunnel_server_turned_away_total"
		buffered  = "fairlead_tunnel_server_buffered_bytes"
		expires   = "fairlead_tunnel_server_certificate_expiration_timestamp_seconds"
		agentEnds = "fairlead_tunnel_agent_certificate_expiration_timestamp_seconds"
	)
	return []Alert{
		{
			Name: "KonnectivityConnectionsEvicted", Severity: Warning, For: 0, OwnMetrics: true,
			Expr: "sum by (cluster, instance, job) (increase(" + evictions + "[10m])) > 0" +
				" or sum by (cluster, instance, job) (increase(fairlead_tunnel_agent_evictions_total[10m])) > 0" +
				" or sum by (cluster, instance, job) (increase(fairlead_tunnel_server_overflows_total[10m])) > 0" +
				" or sum by (cluster, instance, job) (increase(fairlead_tunnel_agent_overflows_total[10m])) > 0",
			Summary: "{{ $labels.instance }} closed connections whose receivers do not take their bytes.",
			Fault:   []Series{{evictions + `{bound="peer",` + server1[1:], "0x5 2x40"}},
			Health:  []Series{{evictions + `{bound="peer",` + server1[1:], "2x40"}, {"fairlead_tunnel_agent_overflows_total" + agent1, "0x40"}},
			Fires:   []map[string]string{on1()},
		},
		{
			Name: "KonnectivityBufferedBytesHigh", Severity: Warning, For: 5 * time.Minute, OwnMetrics: true,
			Expr:    buffered + " > 512 * 1024 * 1024 or fairlead_tunnel_agent_buffered_bytes > 512 * 1024 * 1024",
			Summary: "{{ $labels.instance }} holds more than half of the default of --total-buffer for slow receivers.",
			Fault:   []Series{{buffered + server1, "900000000x40"}},
			Health:  []Series{{buffered + server1, "1000000x10 900000000 1000000x40"}, {"fairlead_tunnel_agent_buffered_bytes" + agent1, "0x40"}},
			Fires:   []map[string]string{on1()},
		},
		{
			Name: "KonnectivityTurnedAway", Severity: Critical, For: 0, OwnMetrics: true,
			Expr:    "sum by (cluster, instance, job) (increase(" + turned + "[10m])) > 0",
			Summary: "konnectivity-server {{ $labels.instance }} refuses connections because it has no file descriptors left.",
			Fault:   []Series{{turned + `{listener="grpc",` + server1[1:], "0x5 7x40"}},
			Health:  []Series{{turned + `{listener="grpc",` + server1[1:], "7x40"}},
			Fires:   []map[string]string{on1()},
		},
		{
			Name: "KonnectivityDescriptorsLow", Severity: Warning, For: 5 * time.Minute,
			Expr:    "process_open_fds / process_max_fds > 0.8 and on (cluster, instance, job) (" + readyAgents + " or " + openServers + ")",
			Summary: "{{ $labels.instance }} uses more than 80% of its file descriptors.",
			Fault:   []Series{{"process_open_fds" + server1, "900x40"}, {"process_max_fds" + server1, "1024x40"}, {readyAgents + server1, "2x40"}},
			Health: []Series{{"process_open_fds" + server1, "100x40"}, {"process_max_fds" + server1, "1024x40"}, {readyAgents + server1, "2x40"},
				{`process_open_fds{instance="other:1",job="other"}`, "900x40"}, {`process_max_fds{instance="other:1",job="other"}`, "1024x40"}},
			Fires: []map[string]string{on1()},
		},
		{
			Name: "KonnectivityCertificateExpires", Severity: Warning, For: 0, OwnMetrics: true,
			Expr:    expires + " - time() < 7 * 86400 or " + agentEnds + " - time() < 7 * 86400",
			Summary: "The certificate of {{ $labels.instance }} for {{ $labels.peer }} expires within seven days.",
			Fault:   []Series{{expires + `{peer="agents",` + server1[1:], "86400x40"}},
			Health:  []Series{{expires + `{peer="agents",` + server1[1:], "31536000x40"}, {agentEnds + `{peer="servers",` + agent1[1:], "31536000x40"}},
			Fires:   []map[string]string{on1("peer", "agents")},
		},
	}
}
