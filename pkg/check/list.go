package check

import "time"

// All returns every check in the order in which they run: the cheap ones that explain later failures first, the disruptive ones last.
func All() []Check {
	return append(quick(), disruptive()...)
}

func quick() []Check {
	const tunnelHint = "see the log of konnectivity-server and of the agents; `--only tunnel` repeats these checks alone"
	return []Check{
		{ID: "api-server", Title: "API server is ready", Timeout: 30 * time.Second, Run: apiServer,
			Hint: "ask it yourself: kubectl get --raw '/readyz?verbose'"},
		{ID: "scheduler-three-pods", Title: "Each pod is bound by the scheduler that it names", Timeout: 60 * time.Second, Run: threePods,
			Hint: "see the log of the scheduler that did not bind its pod, and whether a node is Ready and has room"},
		{ID: "scheduler-lease", Title: "Exactly one replica of the second scheduler leads", Timeout: 30 * time.Second, Run: schedulerLease, lease: true,
			Hint: "see the second scheduler's log for `leaderelection`; its Role must allow get and update on its Lease"},
		{ID: "scheduler-coexistence", Title: "The second scheduler's names, Lease and nodes are its own", Timeout: 30 * time.Second, Run: schedulerCoexistence,
			Hint: "two schedulers need names and Leases of their own; nodes of their own keep them from racing for room"},
		{ID: "tunnel-logs", Title: "Pod logs go through the tunnel", Timeout: 90 * time.Second, Run: tunnelLogs, probe: true, Hint: tunnelHint},
		{ID: "tunnel-exec", Title: "Exec goes through the tunnel", Timeout: 90 * time.Second, Run: tunnelExec, probe: true, Hint: tunnelHint},
		{ID: "tunnel-port-forward", Title: "Port-forward goes through the tunnel", Timeout: 90 * time.Second, Run: tunnelPortForward, probe: true, Hint: tunnelHint},
		{ID: "tunnel-node-proxy", Title: "Node proxy goes through the tunnel", Timeout: 60 * time.Second, Run: tunnelNodeProxy, Hint: tunnelHint},
		{ID: "tunnel-service-proxy", Title: "Service proxy goes through the tunnel", Timeout: 60 * time.Second, Run: tunnelServiceProxy, Hint: tunnelHint},
		{ID: "tunnel-webhook", Title: "Webhook behind a Service is called through the tunnel", Timeout: 60 * time.Second, Run: tunnelWebhook, Hint: tunnelHint},
	}
}

func disruptive() []Check {
	return []Check{
		{ID: "scheduler-pending", Title: "Without the second scheduler its pod stays Pending, with it the pod is bound", Disruptive: true,
			Timeout: 3 * time.Minute, Run: schedulerPending, Hint: "see the second scheduler's log"},
		{ID: "scheduler-failover", Title: "After killing the leader another replica leads, and no pod is bound twice", Disruptive: true,
			Timeout: 3 * time.Minute, Run: schedulerFailover, Hint: "two replicas must run, with leader election on the same Lease"},
		{ID: "tunnel-agents-down", Title: "Without agents calls fail clearly, with agents they recover", Disruptive: true,
			Timeout: 4 * time.Minute, Run: agentsDown, Hint: "see the log of konnectivity-server and of the agents"},
	}
}
