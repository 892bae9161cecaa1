// SPDX-License-Identifier: Apache-2.0

// Package dial opens connections to destinations of a cluster from outside of it.
//
// There are five paths. "portforward" uses the pods/portforward subresource and needs only
// rights in the API server. "api" uses the subresource tunnelagents/portforward of the tunnel's
// API. "direct" uses a konnectivity-server, from a host that reaches
// its socket or port. "ssh=USER@HOST" uses a bastion in the cluster's network. "network" uses
// this machine's own network, for a gateway that runs in the cluster.
//
// New makes the Dialer for a path. What all paths have in common is in dial.go: a limit on
// connections, a timeout, and failover to other endpoints of a Service. Each path is a type
// with the same two methods: portforward.go (one upstream connection per Pod in
// upstream.go, a connection in it in forwarded.go), api.go, direct.go, network.go and ssh.go.
package dial
