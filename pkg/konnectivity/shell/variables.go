package shell

// Environment variables that override the defaults of flags which the reference
// server does not have. A variable, unlike a flag, does no harm to its image.
const (
	// AgentClaimsVariable is for --agent-claims.
	AgentClaimsVariable = "FAIRLEAD_AGENT_CLAIMS"
	// DefaultRouteVariable is for --default-route-agents, with commas.
	DefaultRouteVariable = "FAIRLEAD_DEFAULT_ROUTE_AGENTS"
)
