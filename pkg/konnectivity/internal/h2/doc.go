// SPDX-License-Identifier: Apache-2.0

// Package h2 is the small part of HTTP/2 (RFC 9113) that gRPC streams of the
// tunnel need, for both roles. What it does differently from a general
// implementation: received data is handed on in pieces without being collected,
// and no call waits for the network.
//
// # Why this is not a library
//
// A client costs 9 KB of memory here, and 25 to 26 KB with golang.org/x/net/http2 or grpc-go
// (make bench-http2): with 5,000 clients 55 MB instead of 131 to 139. See
// docs/adr/0001-own-http2.md.
package h2
