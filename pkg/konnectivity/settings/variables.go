// SPDX-License-Identifier: Apache-2.0

// Package settings holds what the bundle and the programs of the tunnel must agree on: the environment variables that
// the bundle sets and the programs read, and the flag defaults from which the bundle computes memory limits.
//
// The bundle uses environment variables where it cannot use flags: it may run upstream's images, which exit when they
// get an unknown flag, but ignore an unknown variable.
package settings

const (
	// DrainTimeout overrides the default of --graceful-shutdown-timeout. Its value is a duration like "20s". Keep it
	// some seconds below the Pod's terminationGracePeriodSeconds.
	DrainTimeout = "FAIRLEAD_DRAIN_TIMEOUT"
	// AgentClaims overrides the default of --agent-claims.
	AgentClaims = "FAIRLEAD_AGENT_CLAIMS"
	// DefaultRouteAgents overrides the default of --default-route-agents; its value is a comma-separated list.
	DefaultRouteAgents = "FAIRLEAD_DEFAULT_ROUTE_AGENTS"
	// NonNodeCIDRs overrides the default of --non-node-cidrs; its value is a comma-separated list.
	NonNodeCIDRs = "FAIRLEAD_NON_NODE_CIDRS"
	// AllowedClientNames overrides the default of --server-allowed-client-names; its value is a comma-separated list.
	AllowedClientNames = "FAIRLEAD_SERVER_ALLOWED_CLIENT_NAMES"
	// StatePort overrides the default of --state-port.
	StatePort = "FAIRLEAD_STATE_PORT"
	// StateConnect overrides the default of --state-connect; its value is "true" or nothing.
	StateConnect = "FAIRLEAD_STATE_CONNECT"
	// StateServiceAccount overrides the default of --state-service-account.
	StateServiceAccount = "FAIRLEAD_STATE_SERVICE_ACCOUNT"
	// LocalDestinations overrides the default of --local-destinations; its value is a comma-separated list.
	LocalDestinations = "FAIRLEAD_LOCAL_DESTINATIONS"
)
