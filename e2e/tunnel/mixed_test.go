// Package tunnel tests our tunnel as programs, and with upstream's on the other
// side.
package tunnel

import (
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/konntest"
)

// TestMixedPairs runs the suite with one program of ours and one of upstream's, as
// programs, in both modes.
func TestMixedPairs(t *testing.T) {
	for _, c := range []struct{ server, agent release }{{ours, v0_34_0}, {ours, v0_36_0}, {v0_34_0, ours}, {v0_36_0, ours}, {ours, ours}} {
		for _, mode := range modes {
			t.Run(c.server.String()+" server, "+c.agent.String()+" agent/"+mode, func(t *testing.T) {
				p := startPair(t, options{mode: mode, server: c.server, agent: c.agent})
				own := c.server == ours && c.agent == ours
				want := konntest.Pair{Dial: p.dialer(), Failure: "connection refused", Overtakes: c.server != ours,
					Lossless: own, Isolated: own, HalfClose: own && mode == "http-connect"}
				if mode == "http-connect" {
					want.Failure = "502"
				}
				konntest.Run(t, want)
			})
		}
	}
}
