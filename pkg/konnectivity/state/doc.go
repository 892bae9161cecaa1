// SPDX-License-Identifier: Apache-2.0

// Package state is the protocol in which a konnectivity-server shows what it carries: its agents, their links and
// their connections. The server answers HTTP requests on a Unix socket (--state-socket) or on a TLS port
// (--state-port), and fairlead-apiserver asks them. docs/tunnel-api.md describes the protocol.
//
// Start with [State] and [Connections], the two answers, and with [Client], which asks for them.
//
// All answers are JSON objects with a field "version". A client ignores fields that it does not know, so a server may
// be newer than its clients. A change that a client must not ignore gets a new path.
package state
