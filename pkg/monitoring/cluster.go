// SPDX-License-Identifier: Apache-2.0

package monitoring

import "time"

const apiserver1 = `{instance="cp1:6443",job="apiserver"}`

func onAPIServer(labels ...string) map[string]string {
	return labeled("cp1:6443", "apiserver", labels)
}

// apiserverAlerts show what kube-apiserver sees of the tunnel.
func apiserverAlerts() []Alert {
	const (
		starts      = "apiserver_egress_dialer_dial_start_total"
		failures    = "apiserver_egress_dialer_dial_failure_count"
		unavailable = "aggregator_unavailable_apiservice"
		conversions = "apiserver_conversion_webhook_request_total"
		admissions  = "apiserver_admission_webhook_rejection_count"

		conversionTime = "apiserver_conversion_webhook_duration_seconds_bucket"
		converted      = `result="success",failure_type="",`
		grpc           = `{protocol="grpc",transport="uds",`
	)
	return []Alert{
		{
			Name: "EgressDialFailures", Severity: Critical, For: 5 * time.Minute,
			Expr:    "sum by (cluster, instance, job) (rate(" + failures + "[5m])) / sum by (cluster, instance, job) (rate(" + starts + "[5m])) > 0.05",
			Summary: "More than 5% of the connections that kube-apiserver {{ $labels.instance }} opens through the tunnel fail.",
			Fault:   []Series{{failures + `{stage="proxy",` + grpc[1:] + apiserver1[1:], "0+3x40"}, {starts + grpc + apiserver1[1:], "0+10x40"}},
			Health:  []Series{{failures + `{stage="proxy",` + grpc[1:] + apiserver1[1:], "0x10 1x40"}, {starts + grpc + apiserver1[1:], "0+10x60"}},
			Fires:   []map[string]string{onAPIServer()},
		},
		{
			Name: "AggregatedAPIUnavailable", Severity: Warning, For: 5 * time.Minute,
			Expr:    unavailable + " == 1",
			Summary: "kube-apiserver {{ $labels.instance }} cannot reach the backend of APIService {{ $labels.name }}.",
			Fault:   []Series{{unavailable + `{name="v1beta1.metrics.k8s.io",` + apiserver1[1:], "1x40"}},
			Health:  []Series{{unavailable + `{name="v1beta1.metrics.k8s.io",` + apiserver1[1:], "0x10 1 0x40"}},
			Fires:   []map[string]string{onAPIServer("name", "v1beta1.metrics.k8s.io")},
		},
		{
			Name: "ConversionWebhookFails", Severity: Critical, For: 5 * time.Minute,
			Expr:    `sum by (cluster, instance, job) (increase(` + conversions + `{result="failure"}[10m])) > 0`,
			Summary: "kube-apiserver {{ $labels.instance }} cannot convert custom resources: a conversion webhook fails.",
			Fault:   []Series{{conversions + `{result="failure",failure_type="conversion_webhook_call_failure",` + apiserver1[1:], "0+1x40"}},
			Health: []Series{{conversions + `{result="failure",failure_type="conversion_webhook_call_failure",` + apiserver1[1:], "4x40"},
				{conversions + `{result="success",failure_type="",` + apiserver1[1:], "0+9x40"}},
			Fires: []map[string]string{onAPIServer()},
		},
		{
			Name: "ConversionWebhookSlow", Severity: Warning, For: 10 * time.Minute,
			Expr:    "histogram_quantile(0.99, sum by (le, cluster, instance, job) (rate(" + conversionTime + "[5m]))) > 1",
			Summary: "One conversion of a hundred takes kube-apiserver {{ $labels.instance }} longer than a second.",
			Fault: []Series{{conversionTime + `{le="1",` + converted + apiserver1[1:], "0+90x40"}, {conversionTime + `{le="5",` + converted + apiserver1[1:], "0+100x40"},
				{conversionTime + `{le="+Inf",` + converted + apiserver1[1:], "0+100x40"}},
			Health: []Series{{conversionTime + `{le="1",` + converted + apiserver1[1:], "0+1000x40"}, {conversionTime + `{le="5",` + converted + apiserver1[1:], "0+1001x40"},
				{conversionTime + `{le="+Inf",` + converted + apiserver1[1:], "0+1001x40"}},
			Fires: []map[string]string{onAPIServer()},
		},
		{
			Name: "AdmissionWebhookUnreachable", Severity: Critical, For: 5 * time.Minute,
			Expr:    `sum by (cluster, instance, job, name) (increase(` + admissions + `{error_type="calling_webhook_error"}[10m])) > 0`,
			Summary: "kube-apiserver {{ $labels.instance }} rejects requests because it cannot call webhook {{ $labels.name }}.",
			Fault:   []Series{{admissions + `{error_type="calling_webhook_error",name="a.example.org",operation="CREATE",rejection_code="0",type="validating",` + apiserver1[1:], "0+1x40"}},
			Health:  []Series{{admissions + `{error_type="no_error",name="a.example.org",operation="CREATE",rejection_code="403",type="validating",` + apiserver1[1:], "0+1x40"}},
			Fires:   []map[string]string{onAPIServer("name", "a.example.org")},
		},
	}
}

// schedulerAlerts are about every kube-scheduler that Prometheus scrapes, the default one and others.
func schedulerAlerts() []Alert {
	const (
		leading  = "leader_election_master_status"
		attempts = "scheduler_schedule_attempts_total"
		waiting  = "scheduler_pending_pods"
		first    = `{instance="node1:10259",job="my-scheduler",`
		second   = `{instance="node2:10259",job="my-scheduler",`
	)
	return []Alert{
		{
			Name: "SchedulerNoLeader", Severity: Critical, For: time.Minute,
			Expr:    "max by (cluster, job, name) (" + leading + ") == 0",
			Summary: "No replica of {{ $labels.job }} holds the Lease {{ $labels.name }}.",
			Fault: []Series{{leading + first + `name="my-scheduler"}`, "1x3 0x40"}, {leading + second + `name="my-scheduler"}`, "0x40"},
				{leading + inCluster("b", first) + `name="my-scheduler"}`, "1x40"}},
			Health: []Series{{leading + first + `name="my-scheduler"}`, "1x10 0x40"}, {leading + second + `name="my-scheduler"}`, "0x10 1x40"}},
			Fires:  []map[string]string{{"job": "my-scheduler", "name": "my-scheduler"}},
		},
		{
			Name: "SchedulerAbsent", Severity: Critical, For: 2 * time.Minute,
			Expr:    "max by (cluster, job, name) (last_over_time(" + leading + "[1h])) unless max by (cluster, job, name) (" + leading + ")",
			Summary: "Prometheus no longer finds a replica of {{ $labels.job }} that takes part in the election of Lease {{ $labels.name }}.",
			Fault:   []Series{{leading + first + `name="my-scheduler"}`, "1x3 stale"}, {leading + second + `name="my-scheduler"}`, "0x3 stale"}},
			Health:  []Series{{leading + first + `name="my-scheduler"}`, "1x10 stale"}, {leading + second + `name="my-scheduler"}`, "0x10 1x40"}},
			Fires:   []map[string]string{{"job": "my-scheduler", "name": "my-scheduler"}},
		},
		{
			Name: "SchedulerTwoLeaders", Severity: Critical, For: time.Minute,
			Expr:    "sum by (cluster, job, name) (" + leading + ") > 1",
			Summary: "More than one replica of {{ $labels.job }} says that it holds the Lease {{ $labels.name }}.",
			Fault:   []Series{{leading + first + `name="my-scheduler"}`, "1x40"}, {leading + second + `name="my-scheduler"}`, "1x40"}},
			Health: []Series{{leading + first + `name="my-scheduler"}`, "1x40"}, {leading + second + `name="my-scheduler"}`, "0x40"},
				{leading + inCluster("b", first) + `name="my-scheduler"}`, "1x40"}},
			Fires: []map[string]string{{"job": "my-scheduler", "name": "my-scheduler"}},
		},
		{
			Name: "SchedulerErrors", Severity: Warning, For: 10 * time.Minute,
			Expr:    `sum by (cluster, job, profile) (rate(` + attempts + `{result="error"}[5m])) > 0`,
			Summary: "Scheduler {{ $labels.job }} fails to schedule Pods of profile {{ $labels.profile }} because of errors.",
			Fault:   []Series{{attempts + first + `profile="my-scheduler",result="error"}`, "0+1x40"}},
			Health:  []Series{{attempts + first + `profile="my-scheduler",result="error"}`, "0x10 1x40"}, {attempts + first + `profile="my-scheduler",result="scheduled"}`, "0+5x60"}},
			Fires:   []map[string]string{{"job": "my-scheduler", "profile": "my-scheduler"}},
		},
		{
			Name: "SchedulerPodsPending", Severity: Warning, For: 30 * time.Minute,
			Expr:    `sum by (cluster, job) (` + waiting + `{queue="unschedulable"}) > 0`,
			Summary: "Scheduler {{ $labels.job }} has found no node for some Pods for half an hour.",
			Fault:   []Series{{waiting + first + `queue="unschedulable"}`, "3x60"}},
			Health:  []Series{{waiting + first + `queue="unschedulable"}`, "3x10 0x60"}, {waiting + first + `queue="active"}`, "5x60"}},
			Fires:   []map[string]string{{"job": "my-scheduler"}},
		},
		unknownScheduler(attempts, first),
	}
}

// unknownScheduler is about Pods that name a scheduler which does not exist: one that does has bound a Pod, or has tried to.
func unknownScheduler(attempts, first string) Alert {
	const requests = "kube_pod_resource_request" // of all Pods, at the path /metrics/resources of each kube-scheduler
	return Alert{
		Name: "PodsPendingForUnknownScheduler", Severity: Warning, For: 10 * time.Minute,
		Expr: "count by (cluster, scheduler) (" + requests + `{node="",scheduler!=""}) unless on (cluster, scheduler) (` + requests +
			`{node!=""} or label_replace(` + attempts + `, "scheduler", "$1", "profile", "(.+)"))`,
		Summary: "Pods wait for scheduler {{ $labels.scheduler }}, which has neither bound a Pod nor tried to.",
		Fault: []Series{{requests + `{node="",pod="a",resource="cpu",scheduler="no-such-scheduler"}`, "1x40"}, {requests + `{cluster="b",node="node1",pod="b",resource="cpu",scheduler="no-such-scheduler"}`, "1x40"},
			{attempts + first + `profile="my-scheduler",result="scheduled"}`, "1x40"}},
		Health: []Series{{requests + `{node="",pod="a",resource="cpu",scheduler="my-scheduler"}`, "1x40"}, {attempts + first + `profile="my-scheduler",result="unschedulable"}`, "1x40"},
			{requests + `{node="",pod="b",resource="cpu",scheduler="volcano"}`, "1x40"}, {requests + `{node="node1",pod="c",resource="cpu",scheduler="volcano"}`, "1x40"}},
		Fires: []map[string]string{{"scheduler": "no-such-scheduler"}},
	}
}

// wayInAlerts are about fairlead proxy and fairlead socks5, with --metrics-address.
func wayInAlerts() []Alert {
	const (
		logins = "fairlead_socks5_authentication_failures_total"
		full   = "fairlead_socks5_rejected_connections_total"
		proxy1 = `{instance="bastion:9090",job="fairlead-socks5"}`
	)
	return []Alert{
		{
			Name: "SOCKS5LoginsFail", Severity: Warning, For: 0, OwnMetrics: true,
			Expr:    "sum by (cluster, instance, job) (increase(" + logins + "[10m])) > 20",
			Summary: "Clients of fairlead socks5 {{ $labels.instance }} fail to authenticate.",
			Fault:   []Series{{logins + `{protocol="socks5",` + proxy1[1:], "0+5x40"}},
			Health:  []Series{{logins + `{protocol="socks5",` + proxy1[1:], "0x10 2x40"}},
			Fires:   []map[string]string{labeled("bastion:9090", "fairlead-socks5", nil)},
		},
		{
			Name: "SOCKS5Full", Severity: Warning, For: 0, OwnMetrics: true,
			Expr:    "increase(" + full + "[10m]) > 0",
			Summary: "fairlead socks5 {{ $labels.instance }} closes connections because of its limits.",
			Fault:   []Series{{full + proxy1, "0x5 9x40"}},
			Health:  []Series{{full + proxy1, "9x40"}},
			Fires:   []map[string]string{labeled("bastion:9090", "fairlead-socks5", nil)},
		},
	}
}
