// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestLateName: the servers' name resolves some time after the agent has started, as
// while a cluster's DNS starts. The agent does not ask less and less often.
func TestLateName(t *testing.T) {
	t.Parallel()
	const misses = 25
	r := NewRig(t, server.Config{})
	var asked atomic.Int64
	lookup := func(context.Context, string) ([]string, error) {
		if asked.Add(1) <= misses {
			return nil, &net.DNSError{Err: "server misbehaving", Name: "servers.test", IsTemporary: true}
		}
		return []string{"127.0.0.1"}, nil
	}
	_, port, _ := net.SplitHostPort(r.AgentTLS)
	// With pauses that grow, the 26 looks take two minutes.
	a := r.StartAgent(agent.Config{Lookup: lookup, SyncInterval: 20 * time.Millisecond, SyncIntervalCap: 10 * time.Second}, net.JoinHostPort("servers.test", port))
	if n := asked.Load(); n <= misses {
		t.Errorf("connected after %d looks", n)
	}
	if n := Metric(a.Metrics.Registry, `fairlead_tunnel_agent_connect_failures_total{reason="error"}`); n != misses {
		t.Errorf("%v failures are counted, want %d", n, misses)
	}
}
