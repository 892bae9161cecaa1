// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/upstream"
)

// TestCancelMeetsAnswer: a dial that is canceled while its answer comes in ends at the
// agent, whichever is first.
func TestCancelMeetsAnswer(t *testing.T) {
	p := newPair(t, upstream.Config{}, upstream.Config{})
	for i := range 3000 {
		st, err := p.server.Dial("x:1", sinktest.NewSink(nil, false))
		if err != nil {
			t.Fatal(err)
		}
		<-p.come // the answer is being sent
		for spin := time.Now(); time.Since(spin) < time.Duration(i%200)*time.Microsecond; {
		}
		st.Reset("canceled", false)
	}
	sinktest.Eventually(t, "nothing is left", func() bool { return p.server.Len() == 0 && p.agent.Len() == 0 })
}
