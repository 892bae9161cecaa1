// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"net/http"
	"strings"
)

// TunnelError gives a reason to what a server or an agent says. The kinds are those of
// docs/tunnel.md; upstream's server has only the status.
func TunnelError(to Destination, status int, text string) error {
	text = strings.TrimSpace(text)
	kind, _, _ := strings.Cut(strings.TrimPrefix(text, fmt.Sprintf("%d ", status)), ":")
	reason, hint := ReasonPathDown, "see the konnectivity-server's log"
	switch {
	case kind == "refused", strings.Contains(text, "connection refused"):
		reason, hint = ReasonRefused, "check that something listens on this port"
	case kind == "no_route", strings.Contains(text, "unreachable"), strings.Contains(text, "no route to host"):
		reason, hint = ReasonHostUnreachable, "check the network of the agent's node"
	case kind == "dns", strings.Contains(text, "no such host"):
		reason, hint = ReasonNotFound, "the agent cannot resolve this name: check its DNS"
	case kind == "denied", status == http.StatusForbidden:
		reason, hint = ReasonDenied, "see the agent's flags for destinations"
	case kind == "limit":
		reason, hint = ReasonBusy, "close connections, or raise the limit of the server or agent"
	case kind == "no_agent", kind == "agent_gone":
		hint = "check that an agent for this destination is connected: kubectl get pods -A -l k8s-app=konnectivity-agent"
	case kind == "timeout", status == http.StatusGatewayTimeout, strings.Contains(text, "timeout"), strings.Contains(text, "deadline exceeded"):
		reason, hint = ReasonTimeout, "check that the destination answers"
	}
	return Errorf(reason, hint, "konnectivity-server cannot connect to %s: %w", to, fmt.Errorf("%.500s", text))
}
