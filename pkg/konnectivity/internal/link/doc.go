// SPDX-License-Identifier: Apache-2.0

// Package link is the protocol between our own server and agent. It carries many
// tunneled connections over one TLS connection, each with its own flow control
// in both directions. docs/tunnel-protocol.md describes it.
//
// # Why this is not a library
//
// hashicorp/yamux carries half as much with one stream (1,436 MB/s instead of 2,962) and opens
// a quarter as many streams per second (make bench-mux). It has no fairness between streams and
// cannot tell a close from a half-close. See docs/adr/0002-own-link-protocol.md.
package link
