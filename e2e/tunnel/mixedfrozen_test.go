// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestMixedFrozenServer: our agent gives an upstream server up that has stopped, which it may
// ping every 30 s at most, and is back soon after that goes on.
func TestMixedFrozenServer(t *testing.T) {
	testutil.Full(t, "waits 50 s for the agent")
	for _, server := range []release{v0_34_0, v0_36_0} {
		t.Run(server.String()+" server", func(t *testing.T) {
			t.Parallel()
			p := startPair(t, options{mode: "grpc", server: server, agentFlags: []string{"--keepalive-time=30s"}})
			p.server.Freeze(t)
			frozen := time.Now()
			daemontest.Eventually(t, 2*time.Minute, func() error { // 50 s, and as long again for a busy machine
				if get(p.agentHealth+"/readyz") == nil {
					return fmt.Errorf("the agent is ready")
				}
				return nil
			})
			t.Logf("given up after %v", time.Since(frozen).Round(time.Millisecond))
			if err := p.server.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			daemontest.Eventually(t, startBound, func() error { return get(p.agentHealth + "/readyz") })
			daemontest.Eventually(t, startBound, func() error { // the server may still have what it was frozen with
				c, err := p.dialer()(context.Background(), p.echo)
				if err != nil {
					return err
				}
				defer c.Close()
				return roundTrip(c)
			})
		})
	}
}
