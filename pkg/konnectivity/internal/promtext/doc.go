// SPDX-License-Identifier: Apache-2.0

// Package promtext holds counters, gauges and histograms and writes them in the
// Prometheus text format.
//
// # Why this is not a library
//
// client_golang, with the protobuf runtime, adds 2.8 MB of resident memory to each process:
// two programs that differ in this import alone use 4.1 and 6.9 MB (make bench-promtext).
// e2e/tunnel parses the output with Prometheus' own parser. See
// docs/adr/0013-own-netx-and-promtext.md.
package promtext
