// SPDX-License-Identifier: Apache-2.0

// Package incluster makes a check.Env for a cluster about which only the kubeconfig is known: the second scheduler is a Deployment, the agents
// are a DaemonSet (or Deployment), and konnectivity-server's metrics are read through the API server's pod proxy.
package incluster
