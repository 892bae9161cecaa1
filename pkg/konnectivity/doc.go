// SPDX-License-Identifier: Apache-2.0

// Package konnectivity is the data plane of the tunnel between kube-apiserver
// and the nodes: a server to which kube-apiserver connects, and an agent that
// dials destinations on the nodes' network.
//
// It implements the commands konnectivity-server and konnectivity-agent. They
// replace either program of apiserver-network-proxy, or both.
//
// Start with server and agent:
//
//	server        connections of kube-apiserver, choice of an agent, authentication of agents
//	server/app    flags, validation and start-up of konnectivity-server
//	agent         links to all servers, dials to destinations
//	agent/app     flags, validation and start-up of konnectivity-agent
//	destinations  the rules for which destinations may be dialed
//	identifiers   what agents claim to reach: addresses, host names, the default route
//	settings      environment variables and defaults that the bundle shares
//	state         what a server shows of its agents and connections, and the client that reads it
//	tunneltest    servers, agents, certificates and clients for tests
//
// The packages in internal:
//
//	internal/tunnel       the interface of both kinds of link to servers and agents
//	internal/link         Fairlead's protocol between server and agent (docs/tunnel-protocol.md)
//	internal/upstream     upstream's protocol between server and agent
//	internal/h2           the part of HTTP/2 and gRPC that upstream's protocol needs
//	internal/wire         codec of upstream's packets
//	internal/endpoint     connects a socket to a stream
//	internal/netx         sockets, internal/buffer their memory
//	internal/membudget    the memory limit for slow receivers
//	internal/apiclient    TokenReviews, Leases and Nodes
//	internal/tlsreload    certificates that are read again when they change
//	internal/trace        spans of dials
//	internal/promtext     metrics
//	internal/cmdutil      flags and start-up that both programs have
//
// All other rules follow from this one: a goroutine that reads a shared
// connection never waits for the receiver of one tunneled connection.
package konnectivity
