// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestReconnectsAreLoggedOnce: a host whose agent connects and goes in a loop, each time
// with another ID, has one line of each kind. An agent of another node at the same address
// has lines of its own, and so has each reason: a server that writes while the agent closes
// the connection finds a broken pipe instead of its end.
func TestReconnectsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	const times = 20
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			t.Parallel()
			said := &logs{all: true}
			r := NewRig(t, server.Config{Tokens: boundTokens{}, Protocol: Only(upstreamOnly),
				Logger: said.logger(), LogAgain: Patience})
			reconnect := func(node, id string) {
				a := r.StartAgent(agentOf(node, agent.Config{AgentID: id}), "")
				a.Stop()
				Eventually(t, Patience, "the agent is gone", func() bool { return connected(r) == 0 })
			}
			for i := range times {
				reconnect("node-1", fmt.Sprint("loops", string(rune('a'+i))))
			}
			said.wantOneOf(t, "The agent is connected", `agent="loopsa" address="127.0.0.1:`)
			Eventually(t, Patience, "a departure is logged", func() bool { return len(said.logged("The agent is gone")) > 0 })
			wantReasonsOnce(t, said.logged("The agent is gone"))
			reconnect("another node", "other")
			Eventually(t, Patience, "the other agent is logged", func() bool {
				return len(said.logged(`The agent is connected agent="other"`)) == 1 && len(said.logged(`The agent is gone agent="other"`)) == 1
			})
		})
	}
}

// wantReasonsOnce fails the test if two lines have the same reason. Numbers, such as ports, do not count.
func wantReasonsOnce(t *testing.T, lines []string) {
	t.Helper()
	first := map[string]string{}
	for _, line := range lines {
		_, reason, ok := strings.Cut(line, " err=")
		if !ok {
			t.Errorf("logged %q, want a reason", line)
		}
		reason = strings.Map(func(r rune) rune {
			if unicode.IsDigit(r) {
				return -1
			}
			return r
		}, reason)
		if other, twice := first[reason]; twice {
			t.Errorf("logged %q and %q, want one line for each reason", other, line)
		}
		first[reason] = line
	}
}
