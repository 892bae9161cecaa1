// SPDX-License-Identifier: Apache-2.0

// Package netx reads and writes the sockets at the two ends of a tunnel without
// tying up memory or goroutines: an idle connection holds no buffer, and a write
// never waits.
//
// # Why this is not a library
//
// Package net keeps a goroutine for each blocked write and tells Go's scheduler of each system
// call. Without the latter 16 uploads are 1.14 times as fast, and 16 gRPC downloads 1.2 times
// (docs/tunnel-benchmark.md, "What was changed for speed"). calls_race.go uses package syscall,
// so that the race detector sees the calls. See docs/adr/0013-own-netx-and-promtext.md.
package netx
