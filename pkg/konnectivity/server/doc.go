// SPDX-License-Identifier: Apache-2.0

// Package server accepts kube-apiserver on one side and agents on the other. It makes
// the connections that kube-apiserver asks for through the agents.
//
// Start with [Config], [New] and [Server.Serve]. A connection comes in through grpc.go or
// connect.go (GRPC or HTTP CONNECT), dial.go dials, choose.go and reserve.go choose an
// agent, and endpoint joins the two sides. Agents come in through listen.go; admit.go
// authenticates them, claims.go and disputes.go judge their identifiers, registry.go keeps
// them, reviews.go reviews their tokens again. state.go shows all of it to others.
package server
