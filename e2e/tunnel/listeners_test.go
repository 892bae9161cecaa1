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

// TestSystemd: both programs tell systemd when they are ready, the agent not before it
// is connected, and when they stop.
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
		_ = l.SetReadDeadline(time.Now().Add(2 * time.Second)) // several tries of the agent
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

// TestAdmin: profiles are served only where asked for, on loopback; the agent's admin
// port leads to its metrics (KON-40, KON-67).
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
