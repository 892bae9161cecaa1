// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// promptly limits exits that wait for nothing. It is less than any wait that the tests configure, and leaves room for a
// busy machine.
const promptly = 10 * time.Second

// longWait is longer than promptly, so that a program that waits for it fails the test.
const longWait = "30s"

var modes = []string{"grpc", "http-connect"}

// TestAgentExitsOnSIGTERM checks that the agent exits after a SIGTERM. Upstream's agent only drains at the first
// SIGTERM and never exits by itself.
// It observes KON-76 of docs/requirements.md.
// It also observes OLD-22 of docs/requirements.md.
func TestAgentExitsOnSIGTERM(t *testing.T) {
	t.Run("idle", func(t *testing.T) {
		p := startPair(t, options{mode: "grpc", agentEnv: []string{"FAIRLEAD_DRAIN_TIMEOUT=" + longWait}})
		p.agent.Terminate(t)
		wantExit(t, p.agent, promptly)
	})
	t.Run("idle after a connection", func(t *testing.T) {
		p := startPair(t, options{mode: "grpc", agentEnv: []string{"FAIRLEAD_DRAIN_TIMEOUT=" + longWait}})
		conn := p.dial(t)
		p.agent.Terminate(t)
		mustCarry(t, conn, 2*time.Second)
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		wantExit(t, p.agent, promptly)
	})
	t.Run("open connection is carried until the timeout", func(t *testing.T) {
		p := startPair(t, options{mode: "grpc", agentEnv: []string{"FAIRLEAD_DRAIN_TIMEOUT=2s"}})
		conn := p.dial(t)
		p.agent.Terminate(t)
		mustCarry(t, conn, time.Second)
		wantExit(t, p.agent, promptly)
	})
	t.Run("second signal ends the drain", func(t *testing.T) {
		p := startPair(t, options{mode: "grpc", agentEnv: []string{"FAIRLEAD_DRAIN_TIMEOUT=" + longWait}})
		conn := p.dial(t)
		p.agent.Terminate(t)
		mustCarry(t, conn, time.Second)
		p.agent.Terminate(t)
		wantExit(t, p.agent, promptly)
	})
	t.Run("no server in reach", func(t *testing.T) {
		ports, tls := daemontest.Ports(t, 3), daemontest.Certificate(t)
		health := "http://127.0.0.1:" + ports[1]
		agent := daemontest.Start(t, []string{"FAIRLEAD_DRAIN_TIMEOUT=" + longWait}, ourAgent(),
			"--proxy-server-host=127.0.0.1", "--proxy-server-port="+ports[0], "--ca-cert="+tls.CA,
			"--health-server-host=127.0.0.1", "--health-server-port="+ports[1], "--admin-server-port="+ports[2])
		daemontest.Eventually(t, startBound, func() error { return get(health + "/healthz") })
		agent.Terminate(t)
		wantExit(t, agent, promptly)
	})
}

// TestServerExitsOnSIGTERM checks that the server exits after a SIGTERM. One open connection keeps upstream's server
// from exiting.
func TestServerExitsOnSIGTERM(t *testing.T) {
	// Upstream's agent drops a server that announces its shutdown at the next probe, after a second by default.
	patient := []string{"--probe-interval=1m"}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Run("idle", func(t *testing.T) {
				p := startPair(t, options{mode: mode})
				p.server.Terminate(t)
				wantExit(t, p.server, promptly)
				if err := absent(p.socket); err != nil {
					t.Error(err)
				}
			})
			t.Run("open connection", func(t *testing.T) {
				p := startPair(t, options{mode: mode})
				p.dial(t)
				p.server.Terminate(t)
				wantExit(t, p.server, promptly)
				if err := absent(p.socket); err != nil {
					t.Error(err)
				}
			})
			t.Run("graceful shutdown carries connections until its timeout", func(t *testing.T) {
				p := startPair(t, options{mode: mode, serverFlags: []string{"--graceful-shutdown-timeout=2s"}, agentFlags: patient})
				conn := p.dial(t)
				p.server.Terminate(t)
				mustCarry(t, conn, time.Second)
				wantExit(t, p.server, promptly)
			})
			t.Run("second signal ends the graceful shutdown", func(t *testing.T) {
				p := startPair(t, options{
					mode: mode, serverFlags: []string{"--graceful-shutdown-timeout=" + longWait}, agentFlags: patient,
				})
				conn := p.dial(t)
				p.server.Terminate(t)
				mustCarry(t, conn, time.Second)
				p.server.Terminate(t)
				wantExit(t, p.server, promptly)
			})
		})
	}
}

// TestServerExitsWhileAPIServerHangs checks that an API server that does not answer does not delay the exit for long.
// The server deletes its Lease before it exits.
func TestServerExitsWhileAPIServerHangs(t *testing.T) {
	hanging, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // the kernel accepts connections, and no process answers
	if err != nil {
		t.Fatal(err)
	}
	defer hanging.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	content := `{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"http://` +
		hanging.Addr().String() + `"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}],"users":[{"name":"c","user":{}}]}`
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startPair(t, options{mode: "grpc", serverFlags: []string{"--enable-lease-controller", "--kubeconfig=" + kubeconfig}})
	p.server.Terminate(t)
	wantExit(t, p.server, 8*time.Second)
}

// TestSocketMode checks the mode of the socket: processes of the same user or group, such as kube-apiserver, can
// connect to it, and no others can.
// It observes KON-48 of docs/requirements.md.
func TestSocketMode(t *testing.T) {
	p := startPair(t, options{mode: "grpc"})
	info, err := os.Stat(p.socket)
	if err != nil {
		t.Fatal(err)
	}
	if want := os.ModeSocket | 0o770; info.Mode() != want {
		t.Errorf("socket mode %v, want %v", info.Mode(), want)
	}
}

func TestAgentRefusesInvalidDrainTimeout(t *testing.T) {
	for _, value := range []string{"soon", "-1s", "5"} {
		agent := daemontest.Start(t, []string{"FAIRLEAD_DRAIN_TIMEOUT=" + value}, ourAgent(), "--proxy-server-host=127.0.0.1")
		if code := agent.ExitCode(t, promptly); code != 1 {
			t.Errorf("%q: exit code %d, want 1", value, code)
		}
	}
}

func wantExit(t *testing.T, p *daemontest.Process, bound time.Duration) {
	t.Helper()
	start := time.Now()
	if code := p.ExitCode(t, bound); code != 0 {
		t.Fatalf("exit code %d, want 0", code)
	}
	t.Logf("exited after %v", time.Since(start).Round(time.Millisecond))
}

// mustCarry checks for a while that an open connection still carries bytes.
func mustCarry(t *testing.T, conn net.Conn, while time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(while); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err := roundTrip(conn); err != nil {
			t.Fatalf("an open connection broke while draining: %v", err)
		}
	}
}
