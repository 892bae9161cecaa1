// Package konnectivity is the data plane of the tunnel between kube-apiserver
// and the nodes: a server that speaks to kube-apiserver and an agent that dials
// destinations on the nodes' network.
//
// The commands konnectivity-server and konnectivity-agent are made of it. They
// take the place of either program of apiserver-network-proxy, or of both.
//
// Start reading here:
//
//	wire    codec of the seven packets of the reference protocol
//	link    the protocol between our own server and agent (docs/tunnel-protocol.md)
//	h2      the small part of HTTP/2 and gRPC that the reference protocol needs
//	tunnel  what both kinds of link look like to a server or an agent
//	server  frontends, choice of an agent, authentication of agents
//	refusals  one line in the log for attempts that fail again and again
//	agent   dialling destinations, keeping links to all servers
//	serverapp, agentapp  the commands' flags and what they turn on
//
// The rule that everything else follows from: a goroutine that reads a shared
// connection never waits for the receiver of one tunnelled connection.
package konnectivity
