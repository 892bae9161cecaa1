// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"os"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestUpgrade replaces the programs of an earlier version by those of this one under load, in both orders of server and
// agents, and back again. No new connection fails, and no transfer is cut.
func TestUpgrade(t *testing.T) {
	if os.Getenv(harness.EarlierPrograms) == "" {
		t.Skipf("%s does not name a directory with the programs of an earlier version: use make test-upgrade", harness.EarlierPrograms)
	}
	for name, serverFirst := range map[string]bool{"server first": true, "agents first": false} {
		t.Run(name, func(t *testing.T) {
			p := startPair(t, options{mode: "grpc", server: earlier, agent: earlier, serverEnv: []string{settings.DrainTimeout + "=5s"}})
			agents := []*daemontest.Process{p.agent, p.startAgent()}
			daemontest.Eventually(t, startBound, backends(p, len(agents)))
			load, tr := tunneltest.StartLoad(t, p.dialer(), p.echo, perSecond), tunneltest.StartTraffic(t, p.dialer(), nil)
			for _, to := range []release{ours, earlier} {
				p.change(to)
				if serverFirst {
					p.restartServer(t, len(agents), 0)
				}
				for i := range agents {
					load.MoreDials(t, perSecond/4)
					agents[i].Terminate(t)
					wantExit(t, agents[i], 10*time.Second)
					agents[i] = p.startAgent()
					daemontest.Eventually(t, startBound, backends(p, len(agents)))
				}
				if !serverFirst {
					p.restartServer(t, len(agents), 0)
				}
				load.MoreDials(t, perSecond)
			}
			tr.Progress()
			load.NoneFailed(t)
			tr.NoneCut()
		})
	}
}
