// SPDX-License-Identifier: Apache-2.0

// Package socks5 serves SOCKS5 (RFC 1928, RFC 1929) and HTTP CONNECT (RFC 9110) on one
// port, with or without TLS. The first byte of a connection tells the protocols apart.
//
// A connection is authenticated, resolved, authorized and dialed, in this order; only then
// the client gets its reply, so that the reply says what really happened. Bytes then flow
// until both sides have ended, each direction by itself.
//
// Start with Server in server.go. Replies to each gateway.Reason are in reasons.go.
package socks5
