// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"crypto/tls"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/logtest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestSharedServerID: an agent that is connected to another server of the same ID is counted
// each time and logged once. One that is connected here, as a search that meets the same
// server again, is neither, and neither is one while the server is young.
func TestSharedServerID(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	r := tunneltest.NewRig(t, server.Config{ServerID: "same", Logger: logtest.New(func(_ int, line string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(line, "--server-id") {
			lines = append(lines, line)
		}
	})})
	r.StartAgent(agent.Config{AgentID: "here"}, "")
	cfg, err := r.AgentTLSConfig()()
	if err != nil {
		t.Fatal(err)
	}
	cfg.NextProtos = []string{link.ALPN}
	introduce := func(id string) {
		t.Helper()
		nc, err := tls.Dial("tcp", r.AgentTLS, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = nc.Close() }()
		_, err = link.SendHello(nc, link.Hello{AgentID: id, Window: 1 << 16, Have: "another,same"})
		var refused *link.RefusedError
		if !errors.As(err, &refused) || refused.Reason != link.ReasonDuplicate {
			t.Fatalf("got %v, want a refusal as duplicate", err)
		}
	}
	counted := func() float64 {
		return tunneltest.Metric(r.Metrics.Registry, "fairlead_tunnel_server_shared_id_total")
	}
	introduce("elsewhere")
	r.Server.Age(time.Hour)
	introduce("here")
	if n := counted(); n != 0 {
		t.Errorf("counted %v times where no other server is known to have the ID", n)
	}
	for range 3 {
		introduce("elsewhere")
	}
	mu.Lock()
	defer mu.Unlock()
	if n := counted(); n != 3 || len(lines) != 1 {
		t.Errorf("counted %v times, want 3, and logged %q, want one line", n, lines)
	}
}
