// SPDX-License-Identifier: Apache-2.0

// Package registry serves the resources of the API. Agents and servers are in a memstore below upstream's watch cache
// (rest.go). Connections are listed from snapshots (connections.go). Tables are in tables.go.
//
// Start with [New].
package registry
