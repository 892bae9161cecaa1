// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// upstreamReviews: servers of upstream's let our agent in with the right token and refuse
// it with any other. It says why, goes on asking, and is in as soon as its file has the
// right one.
func upstreamReviews(t *testing.T, cp *daemontest.ControlPlane) {
	good := tokenFile(t, cp, "konnectivity-agent", audience)
	for _, server := range []release{v0_34_0, v0_36_0} {
		t.Run(server.String()+" server", func(t *testing.T) {
			p := startPair(t, options{mode: "grpc", server: server, noClientCA: true, serverFlags: reviewFlags(cp),
				agentFlags: []string{"--service-account-token-path=" + good}})
			conn := p.dial(t)
			for name, path := range badTokens(t, cp, good) {
				t.Run(name, func(t *testing.T) { refusedByUpstream(t, p, path, good) })
			}
			if err := roundTrip(conn); err != nil {
				t.Errorf("a connection through the good agent: %v", err)
			}
		})
	}
}

// refusedByUpstream starts an agent with a bad token next to the one that is in, and gives
// it a good one.
func refusedByUpstream(t *testing.T, p *pair, bad, good string) {
	process, health := p.launchAgent("--service-account-token-path=" + bad)
	daemontest.Eventually(t, startBound, func() error {
		n, err := metric(health, `fairlead_tunnel_agent_connect_failures_total{reason="error"}`)
		if err == nil && n < 2 {
			err = fmt.Errorf("%v refusals are counted", n)
		}
		return err
	})
	if get(health+"/readyz") == nil {
		t.Error("the agent is ready")
	}
	if err := backends(p, 1)(); err != nil {
		t.Error(err)
	}
	if why := "server refused the agent: Failed to validate authentication token"; !strings.Contains(process.Output(), why) {
		t.Errorf("the agent does not say %q:\n%s", why, process.Output())
	}
	token, err := os.ReadFile(good)
	if err == nil {
		err = os.WriteFile(bad, token, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, startBound, func() error { return get(health + "/readyz") })
	daemontest.Eventually(t, startBound, backends(p, 2))
	process.Terminate(t)
	wantExit(t, process, promptly)
	daemontest.Eventually(t, startBound, backends(p, 1))
}
