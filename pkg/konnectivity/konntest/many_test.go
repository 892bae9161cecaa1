package konntest

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestManyAgents: 5,000 agents that all lose their server come back, dials that are
// made meanwhile do not fail, and when the agents end nothing of them stays.
func TestManyAgents(t *testing.T) {
	n := 5000
	if testing.Short() {
		n = 100
	}
	r := NewRig(t, server.Config{AgentWait: Patience})
	baseline := runtime.NumGoroutine()
	p := NewProxy(t, r.AgentTLS)
	links := func() int {
		return int(Metric(r.Metrics.Registry, `fairlead_tunnel_server_links{protocol="fairlead"}`))
	}
	var all []*Agent
	start := time.Now()
	for i := range n { // half of them through a network that will break
		addr := ""
		if i%2 == 0 {
			addr = p.Addr
		}
		all = append(all, r.LaunchAgent(agent.Config{AgentID: fmt.Sprint("agent-", i), SyncInterval: time.Second, SyncIntervalCap: 5 * time.Second}, addr))
	}
	Eventually(t, 2*Patience, "all agents are there", func() bool { return links() == n })
	t.Logf("%d agents connected after %v, %d goroutines", n, time.Since(start), runtime.NumGoroutine()-baseline)
	if per := (runtime.NumGoroutine() - baseline) / n; per > 10 { // proxy, agent and server together
		t.Errorf("%d goroutines per agent", per)
	}
	load := StartLoad(t, Connect(r.Connect), Target(t, Echo), 20)
	p.Refuse(true)
	p.Cut()
	Eventually(t, Patience, "server has noticed", func() bool { return links() <= n-n/2 })
	p.Refuse(false)
	start = time.Now()
	Eventually(t, 2*Patience, "all agents are back", func() bool { return links() == n })
	t.Logf("%d agents back after %v", n/2, time.Since(start))
	load.NoDialFailed(t)
	for _, a := range all {
		go a.Stop()
	}
	Eventually(t, Patience, "server has none left", func() bool { return links() == 0 })
	for _, a := range all {
		a.Stop()
	}
	Eventually(t, Patience, "goroutines are gone", func() bool { return runtime.NumGoroutine() <= baseline+10 })
}
