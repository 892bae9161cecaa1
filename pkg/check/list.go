// SPDX-License-Identifier: Apache-2.0

package check

import "time"

// All returns every check in the order in which they run: the cheap ones that explain later failures first, the disruptive ones last.
func All() []Check {
	return append(quick(), disruptive()...)
}

func quick() []Check {
	const tunnelHint = "see the logs of konnectivity-server and the agents; `--only tunnel` repeats only these checks"
	return []Check{
		{ID: "api-server", Title: "API server is ready", Timeout: 30 * time.Second, Run: apiServer,
			Hint: "run: kubectl get --raw '/readyz?verbose'"},
		{ID: "front-proxy-ca", Title: "The client CA and the front proxy's CA are different", Timeout: 30 * time.Second, Run: frontProxyCA,
			Hint: "create a separate CA for the front proxy and set it in kube-apiserver's --requestheader-client-ca-file"},
		{ID: "scheduler-three-pods", Component: ComponentScheduler, Title: "Each pod is bound by the scheduler that it names", Timeout: 60 * time.Second, Run: threePods,
			Hint: "see the log of the scheduler that did not bind its pod, and check that a Ready node has room"},
		{ID: "scheduler-lease", Component: ComponentScheduler, Title: "Exactly one replica of the second scheduler leads", Timeout: 30 * time.Second, Run: schedulerLease, watchesLease: true,
			Hint: "search the second scheduler's log for `leaderelection`; its Role must allow get and update on its Lease"},
		{ID: "scheduler-coexistence", Component: ComponentScheduler, Title: "No other scheduler uses the second scheduler's names, Lease or nodes", Timeout: 30 * time.Second, Run: schedulerCoexistence,
			Hint: "give each scheduler its own names and Lease; separate nodes keep schedulers from competing for room"},
		{ID: "tunnel-kubelet-ca", Component: ComponentTunnel, Title: "No agent can impersonate a kubelet", Timeout: 30 * time.Second, Run: kubeletCA, Hint: tunnelHint},
		{ID: "tunnel-logs", Component: ComponentTunnel, Title: "Pod logs go through the tunnel", Timeout: 90 * time.Second, Run: tunnelLogs, usesProbePod: true, Hint: tunnelHint},
		{ID: "tunnel-exec", Component: ComponentTunnel, Title: "Exec goes through the tunnel", Timeout: 90 * time.Second, Run: tunnelExec, usesProbePod: true, Hint: tunnelHint},
		{ID: "tunnel-port-forward", Component: ComponentTunnel, Title: "Port-forward goes through the tunnel", Timeout: 90 * time.Second, Run: tunnelPortForward, usesProbePod: true, Hint: tunnelHint},
		{ID: "tunnel-node-proxy", Component: ComponentTunnel, Title: "Node proxy goes through the tunnel", Timeout: 60 * time.Second, Run: tunnelNodeProxy, Hint: tunnelHint},
		{ID: "tunnel-service-proxy", Component: ComponentTunnel, Title: "Service proxy goes through the tunnel", Timeout: 60 * time.Second, Run: tunnelServiceProxy, Hint: tunnelHint},
		{ID: "tunnel-webhook", Component: ComponentTunnel, Title: "Webhook behind a Service is called through the tunnel", Timeout: 60 * time.Second, Run: tunnelWebhook, Hint: tunnelHint},
		{ID: "gateway-access", Component: ComponentGateway, Title: "The gateway carries only connections that are allowed", Timeout: 90 * time.Second, Run: gatewayAccess,
			Hint: "see the gateway's log, which has one line for each connection"},
	}
}

func disruptive() []Check {
	return []Check{
		{ID: "scheduler-pending", Component: ComponentScheduler, Title: "Pods wait while the second scheduler is down, and are bound when it returns", Disruptive: true,
			Timeout: 3 * time.Minute, Run: schedulerPending, Hint: "see the second scheduler's log"},
		{ID: "scheduler-failover", Component: ComponentScheduler, Title: "Another replica leads after the leader is killed, and no pod is bound twice", Disruptive: true,
			Timeout: 3 * time.Minute, Run: schedulerFailover, Hint: "run two replicas, with leader election on the same Lease"},
		{ID: "tunnel-agents-down", Component: ComponentTunnel, Title: "Calls fail fast without agents, and recover with them", Disruptive: true,
			Timeout: 4 * time.Minute, Run: agentsDown, Hint: "see the logs of konnectivity-server and the agents"},
	}
}
