// SPDX-License-Identifier: Apache-2.0

// Package collect asks konnectivity-servers for their state and turns the answers into the objects of the API.
//
// Start with [Collector.Run]. A round asks all servers at the same time (poll.go), merges the answers (merge.go,
// agents.go, servers.go) and writes what has changed (write.go). Counts change all the time, so an object whose counts
// alone have changed is written once per [Config.CountsInterval]: otherwise every agent would be an event per second for
// every watcher.
package collect
