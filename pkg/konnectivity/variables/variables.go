// Package variables names the environment variables that the bundle sets and the two programs read. They say what no flag
// may: images of the reference programs, some of which lack the flags, would refuse those, and are not harmed by these.
package variables

const (
	// DrainTimeout overrides the default of --graceful-shutdown-timeout; its value is a duration like "20s" (KON-51).
	// Keep it some seconds below the Pod's terminationGracePeriodSeconds.
	DrainTimeout = "FAIRLEAD_DRAIN_TIMEOUT"
	// AgentClaims overrides the default of --agent-claims.
	AgentClaims = "FAIRLEAD_AGENT_CLAIMS"
	// DefaultRouteAgents overrides the default of --default-route-agents, with commas.
	DefaultRouteAgents = "FAIRLEAD_DEFAULT_ROUTE_AGENTS"
)
