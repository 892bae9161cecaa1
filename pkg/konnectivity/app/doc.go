// Package app holds the commands konnectivity-server and konnectivity-agent: drop-in replacements of
// apiserver-network-proxy's proxy-server and proxy-agent. Start at NewServerCommand and NewAgentCommand.
//
// Flags, defaults and wire protocol are upstream's, and for now so is the data plane. What differs is how the
// programs end. Upstream's agent takes the first SIGTERM as a request to drain and never ends by itself, and its server
// waits without bound for open connections (KON-76), so both are killed after the Pod's grace period. Here both exit
// with code 0 within a bound:
//
//   - the agent once it carries no connection, at the latest after DefaultDrainTimeout (see DrainTimeoutVariable);
//   - the server after --graceful-shutdown-timeout at the latest, which is 0 by default: at once;
//   - either of them at once on a second signal.
package app
