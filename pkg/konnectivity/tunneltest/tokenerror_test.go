// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestReviewHangs: an API server that does not answer is what both logs name, though both
// sides have the same patience from about the same moment.
func TestReviewHangs(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			t.Parallel()
			const patience = 8 * time.Second
			tokens := unanswered{make(chan string, 1), make(chan string, 1)} // a review ends with its context
			var atServer, atAgent logs
			r := NewRig(t, server.Config{Tokens: tokens, Protocol: Only(upstreamOnly), HandshakeTimeout: patience, Logger: atServer.logger()})
			a := r.LaunchAgent(agent.Config{Token: token("any"), ConnectTimeout: patience, SyncInterval: time.Hour, Logger: atAgent.logger()}, "")
			Eventually(t, Patience, "the agent is refused", func() bool {
				return Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="token"}`) > 0 && len(atAgent.logged("Cannot connect")) > 0
			})
			a.Stop()
			atServer.wantOneOf(t, `Refused an agent`, `reason="token"`, "token review timed out")
			atAgent.wantOneOf(t, "Cannot connect", "token review timed out")
		})
	}
}

// TestRefusalsSayLittle: a peer that is not authenticated receives the kind of the refusal
// alone. Whom the server expects and where the API server is are in the server's log.
func TestRefusalsSayLittle(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		for name, c := range map[string]struct {
			prepare    func(v *reviewer)
			account    string
			told, kept string
		}{
			"account":           {func(*reviewer) {}, "expected", "token is of another account", "system:serviceaccount:ns:expected"},
			"API server failed": {func(v *reviewer) { v.status.Store(http.StatusInternalServerError) }, "sa", "the server's log has the reason", "API server answered 500"},
		} {
			t.Run(fmt.Sprintf("%s, upstream=%v", name, upstreamOnly), func(t *testing.T) {
				v, tokens := startReviewer(t, reviewsPerSecond)
				tokens.ServiceAccount = c.account
				c.prepare(v)
				var atServer, atAgent logs
				r := NewRig(t, server.Config{Tokens: tokens, Protocol: Only(upstreamOnly), Logger: atServer.logger()})
				a := r.LaunchAgent(agent.Config{Token: token("good"), Logger: atAgent.logger()}, "")
				Eventually(t, Patience, "the agent is refused", func() bool { return len(atAgent.logged("Cannot connect")) > 0 })
				a.Stop()
				atServer.wantOneOf(t, `Refused an agent`, `reason="token"`, c.kept)
				atAgent.wantOneOf(t, "Cannot connect", c.told)
				if lines := atAgent.logged(c.kept); len(lines) > 0 {
					t.Errorf("the agent received %q", lines)
				}
			})
		}
	}
}
