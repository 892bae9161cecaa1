// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/internal/logtest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// patient waits for connections that close slowly before leaks are looked for.
type patient struct{ *testing.M }

func (p patient) Run() int {
	testutil.Parallel(8) // parallel tests wait most of the time
	code := p.M.Run()
	leaving.Wait()
	return code
}

func TestMain(m *testing.M) {
	if s := os.Getenv(crowdVariable); s != "" {
		if err := runCrowd(s); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testutil.VerifyNoLeaks(patient{m}, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// TestOwnPair runs the suite with our server and agent, over our own link and
// over upstream's protocol, in both modes.
func TestOwnPair(t *testing.T) {
	for _, v := range []struct {
		name         string
		upstreamOnly bool
	}{{"link", false}, {"upstream", true}} {
		t.Run(v.name, func(t *testing.T) {
			r := NewRig(t, server.Config{Protocol: Only(v.upstreamOnly), Logger: logtest.New(func(level int, line string) {
				if level < 3 {
					t.Log(line)
				}
			})})
			r.StartAgent(agent.Config{}, "")
			own := !v.upstreamOnly
			t.Run("grpc", func(t *testing.T) {
				Run(t, Pair{Dial: GRPC(r.GRPC), SlowClients: true, SlowTargets: true, Failure: "connection refused"})
			})
			t.Run("http-connect", func(t *testing.T) {
				Run(t, Pair{Dial: Connect(r.Connect), SlowClients: true, SlowTargets: true, HalfClose: own, Failure: "502"})
			})
		})
	}
}
