// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestSystemd checks that both programs notify systemd when they are ready and when they
// stop. The agent is not ready before it is connected.
func TestSystemd(t *testing.T) {
	path := daemontest.SocketPath(t)
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	said := func(want string) {
		t.Helper()
		_ = l.SetReadDeadline(time.Now().Add(startBound))
		b := make([]byte, 100)
		n, err := l.Read(b)
		if err != nil || string(b[:n]) != want {
			t.Fatalf("systemd heard %q, %v, want %q", b[:n], err, want)
		}
	}
	silent := func(what string) {
		t.Helper()
		_ = l.SetReadDeadline(time.Now().Add(2 * time.Second)) // enough for several attempts of the agent
		b := make([]byte, 100)
		if n, err := l.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%s: systemd heard %q, %v", what, b[:n], err)
		}
	}
	t.Setenv("NOTIFY_SOCKET", path)
	p := startPair(t, options{mode: "grpc"})
	said("READY=1")
	said("READY=1")
	p.agent.Terminate(t)
	said("STOPPING=1")
	p.server.Terminate(t)
	said("STOPPING=1")
	agent, health := p.launchAgent()
	daemontest.Eventually(t, startBound, func() error { return get(health + "/healthz") })
	silent("an agent that runs without a server")
	p.startServer()
	said("READY=1")
	said("READY=1")
	agent.Terminate(t)
	said("STOPPING=1")
}

// TestSocketTaken checks that a server does not start if the path of its socket is a
// file or belongs to another server, and that it logs the reason in one line. The file
// and the other server's connections are not affected.
func TestSocketTaken(t *testing.T) {
	p := startPair(t, options{mode: "grpc"})
	c := p.dial(t)
	file := daemontest.SocketPath(t)
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	tls, ports := daemontest.Certificate(t), daemontest.Ports(t, 3)
	for path, why := range map[string]string{file: "not a socket", p.socket: "a server that is running"} {
		second := daemontest.Start(t, nil, ours.server(), "--mode=grpc", "--uds-name="+path, "--server-port=0",
			"--cluster-cert="+tls.Cert, "--cluster-key="+tls.Key, "--agent-bind-address=127.0.0.1", "--agent-port="+ports[0],
			"--health-bind-address=127.0.0.1", "--health-port="+ports[1], "--admin-port="+ports[2])
		if code := second.ExitCode(t, startBound); code != 1 {
			t.Errorf("%s: exit code %d, want 1", why, code)
		}
		if out := second.Output(); strings.Count(out, path) != 1 || !strings.Contains(out, why) {
			t.Errorf("want one line with %s and %q, got:\n%s", path, why, out)
		}
	}
	if b, err := os.ReadFile(file); string(b) != "precious" {
		t.Errorf("the file holds %q, %v", b, err)
	}
	if err := roundTrip(c); err != nil {
		t.Errorf("connection of the first server: %v", err)
	}
	p.dial(t)
}

// TestAdmin checks that profiles are served on loopback, only if they are enabled, and
// that the agent's admin port redirects to its metrics.
// It observes KON-40 and KON-67 of docs/requirements.md.
func TestAdmin(t *testing.T) {
	ports := daemontest.Ports(t, 4)
	url := func(port string) string { return "http://127.0.0.1:" + port }
	startPair(t, options{
		mode:        "grpc",
		serverFlags: []string{"--admin-port=" + ports[0], "--enable-profiling", "--enable-contention-profiling"},
		agentFlags:  []string{"--admin-server-port=" + ports[1], "--enable-profiling"},
	})
	startPair(t, options{mode: "grpc", serverFlags: []string{"--admin-port=" + ports[2]}, agentFlags: []string{"--admin-server-port=" + ports[3]}})
	for i, port := range ports {
		want := http.StatusOK
		if i >= 2 {
			want = http.StatusNotFound
		}
		for _, profile := range []string{"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/symbol"} {
			resp, err := http.Get(url(port) + profile)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s%s: %s, want %d", url(port), profile, resp.Status, want)
			}
		}
		text, err := fetch(url(port) + "/metrics")
		if err != nil || !strings.Contains(text, "konnectivity_network_proxy_") {
			t.Errorf("%s/metrics: %v", url(port), err)
		}
	}
}
