// SPDX-License-Identifier: Apache-2.0

// Package check proves, after installation, that a cluster does what Fairlead promises: pods choose the second scheduler, exactly one of
// its replicas leads, and the API server reaches nodes, Services and webhooks through the Konnectivity tunnel and in no other way.
//
// Start reading at [All], the list of checks; each lives in a file of its own (apiserver.go, three_pods.go, tunnel_calls.go, failover.go …)
// and is a function of a [Scope]. [Run] executes them in order; each has its own timeout and its own throw-away namespace, and whatever a
// check made or stopped is taken back when it ends, also on failure and on interrupt.
//
// [Env] is all that a check knows of the cluster. Package incluster makes one for any kubeconfig; a provider that owns the processes of a
// cluster makes a better one (see [Parts]). Package report prints results.
package check
