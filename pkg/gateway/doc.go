// SPDX-License-Identifier: Apache-2.0

// Package gateway holds what the ways into a cluster's network have in common: what a
// client asks for, how a name becomes a destination, how a connection to it is opened,
// and how a refusal is reported.
//
// A request takes one path. A listener (pkg/gateway/socks5 for SOCKS5 and HTTP CONNECT)
// authenticates the client and reads a host and a port. A Resolver turns them into a
// Destination: a Service, a Pod or a node of the cluster, or an address outside of it. An
// Authorizer decides whether this client may connect to it. A Dialer opens the connection:
// through pods/portforward, a konnectivity-server, or a bastion (pkg/gateway/dial).
//
// Start with the types in gateway.go.
package gateway
