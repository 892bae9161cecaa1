// SPDX-License-Identifier: Apache-2.0

package monitoring

import "time"

// callAlerts are about dials that fail, are slow or are not answered.
func callAlerts() []Alert {
	const (
		failures = "konnectivity_network_proxy_server_dial_failure_count"
		packets  = "konnectivity_network_proxy_server_stream_packets_total"
		buckets  = "konnectivity_network_proxy_server_dial_duration_seconds_bucket"
		pending  = "konnectivity_network_proxy_server_pending_backend_dials"
		request  = `{segment="to_agent",packet_type="DIAL_REQ",` // counted in both modes; from_client only with gRPC
	)
	return []Alert{
		{
			Name: "KonnectivityDialErrorsHigh", Severity: Warning, For: 5 * time.Minute,
			Expr: "sum by (cluster, instance, job) (rate(" + failures + "[5m]))" +
				" / sum by (cluster, instance, job) (rate(" + packets + `{segment="to_agent",packet_type="DIAL_REQ"}[5m])) > 0.05`,
			Summary: "More than 5% of the dials of konnectivity-server {{ $labels.instance }} fail.",
			Fault:   []Series{{failures + `{reason="endpoint",` + server1[1:], "0+3x40"}, {packets + request + server1[1:], "0+10x40"}},
			Health:  []Series{{failures + `{reason="endpoint",` + server1[1:], "0+3x40"}, {packets + request + server1[1:], "0+100x40"}},
			Fires:   []map[string]string{on1()},
		},
		{
			Name: "KonnectivityDialSlow", Severity: Warning, For: 10 * time.Minute,
			Expr:    "histogram_quantile(0.99, sum by (le, cluster, instance, job) (rate(" + buckets + "[5m]))) > 1",
			Summary: "One dial of a hundred of konnectivity-server {{ $labels.instance }} takes longer than a second.",
			Fault: []Series{{buckets + `{le="0.5",` + server1[1:], "0+90x40"}, {buckets + `{le="2.5",` + server1[1:], "0+100x40"},
				{buckets + `{le="+Inf",` + server1[1:], "0+100x40"}},
			Health: []Series{{buckets + `{le="0.5",` + server1[1:], "0+1000x40"}, {buckets + `{le="2.5",` + server1[1:], "0+1001x40"},
				{buckets + `{le="+Inf",` + server1[1:], "0+1001x40"}},
			Fires: []map[string]string{on1()},
		},
		{
			Name: "KonnectivityPendingDials", Severity: Warning, For: 5 * time.Minute,
			Expr:    pending + " > 100",
			Summary: "konnectivity-server {{ $labels.instance }} has more than 100 dials without an answer.",
			Fault:   []Series{{pending + server1, "500x40"}},
			Health:  []Series{{pending + server1, "0x10 500 3x40"}},
			Fires:   []map[string]string{on1()},
		},
		{
			Name: "KonnectivityBadInput", Severity: Warning, For: 0, OwnMetrics: true,
			Expr: "sum by (cluster, instance, job) (increase(fairlead_tunnel_server_bad_input_total[10m])) > 5" +
				" or sum by (cluster, instance, job) (increase(fairlead_tunnel_agent_violations_total[10m])) > 5",
			Summary: "Peers of {{ $labels.instance }} violate the protocol of the tunnel.",
			Fault:   []Series{{`fairlead_tunnel_server_bad_input_total{peer="agent",` + server1[1:], "0+2x40"}},
			Health:  []Series{{`fairlead_tunnel_server_bad_input_total{peer="agent",` + server1[1:], "0x10 1x40"}},
			Fires:   []map[string]string{on1()},
		},
	}
}
