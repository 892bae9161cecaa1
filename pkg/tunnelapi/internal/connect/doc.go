// SPDX-License-Identifier: Apache-2.0

// Package connect opens TCP connections through agents for users of the API: tunnelagents/portforward.
//
// A request passes these steps: the right to create the subresource, the limits (limits.go), resolution and authorization
// of the destination by the packages of pkg/gateway, and the dial through the agent. Only then does the WebSocket begin, so
// that a failure has a status (errors.go). The bytes are copied by relay.go. Each request leaves one log line and counts in
// the metrics (record.go).
//
// Start with [Handler].
package connect
