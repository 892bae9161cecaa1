// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/pkg/internal/logtest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// defaultVerbosity is the -v of both programs when no flag sets another.
const defaultVerbosity = 4

// TestQuietCalls: a call that succeeds leaves no line in the logs of server and agent at the default verbosity, in
// both modes, over Unix sockets and over TCP, however its client says goodbye.
func TestQuietCalls(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var lines []string
	record := func(who string) logr.Logger {
		return logtest.New(func(level int, line string) {
			if level <= defaultVerbosity {
				mu.Lock()
				defer mu.Unlock()
				lines = append(lines, who+": "+line)
			}
		})
	}
	r := NewRig(t, server.Config{Logger: record("server")})
	r.StartAgent(agent.Config{Logger: record("agent")}, "")
	g, c := r.FrontendsTLS()
	cfg, err := r.AgentTLSConfig()()
	if err != nil {
		t.Fatal(err)
	}
	calls := thorough(250, 20)
	echo := Target(t, Echo)
	for name, dial := range map[string]Dialer{
		"GRPC, UDS": GRPC(r.GRPC), "HTTP CONNECT, UDS": Connect(r.Connect), "GRPC, TCP": GRPCTLS(g, cfg), "HTTP CONNECT, TCP": ConnectTLS(c, cfg),
	} {
		t.Run(name, func(t *testing.T) {
			time.Sleep(100 * time.Millisecond) // the goodbyes of earlier connections are through
			mu.Lock()
			lines = nil
			mu.Unlock()
			for range calls {
				conn := MustDial(t, dial, echo)
				if _, err := conn.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
				if _, err := readFull(conn, make([]byte, 1), Patience); err != nil {
					t.Fatal(err)
				}
				_ = conn.Close()
			}
			Eventually(t, Patience, "all connections are over", func() bool {
				return Metric(r.Metrics.Registry, "konnectivity_network_proxy_server_established_connections") == 0
			})
			time.Sleep(100 * time.Millisecond) // in which nothing is logged
			mu.Lock()
			defer mu.Unlock()
			if len(lines) > 0 {
				t.Errorf("%d good calls left %d lines, the first is %q", calls, len(lines), lines[0])
			}
		})
	}
}
