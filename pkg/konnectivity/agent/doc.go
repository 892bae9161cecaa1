// SPDX-License-Identifier: Apache-2.0

// Package agent implements the side of the tunnel that runs next to the nodes. It keeps
// links to all servers and connects to destinations on their behalf.
//
// Start with [Config], [New] and [Agent.Run]. sync.go and servers.go find the servers and
// keep a client for each (client.go, which retries with a backoff); dial.go connects to a
// destination, and endpoint joins it and the link.
package agent
