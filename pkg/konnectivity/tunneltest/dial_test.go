// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestDialErrors checks that kinds of failures can be distinguished: by the text with gRPC
// and with HTTP CONNECT, by the status with HTTP CONNECT, and in metrics of server and
// agent.
func TestDialErrors(t *testing.T) {
	t.Parallel()
	deny, err := destinations.ParseRules("127.0.0.2,*.denied.test:443,127.0.0.0/8:7777")
	if err != nil {
		t.Fatal(err)
	}
	hole := BlackHole(t)
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			t.Parallel()
			r := NewRig(t, server.Config{Protocol: Only(upstreamOnly)})
			a := r.StartAgent(agent.Config{Policy: destinations.Policy{Deny: deny}, DialTimeout: 500 * time.Millisecond}, "")
			for _, c := range []struct{ name, addr, status, text, kind string }{
				{"refused", "127.0.0.1:1", "502", "connection refused", "refused"},
				{"timeout", hole, "504", "timeout", "timeout"},
				{"no route", "255.255.255.255:80", "502", "unreachable", "no_route"},
				{"no name", "does-not-exist.invalid:80", "502", "lookup does-not-exist.invalid", "dns"},
				{"denied address", "127.0.0.2:80", "403", "denied by rule", "denied"},
				{"denied port", "127.0.0.1:7777", "403", "denied by rule", "denied"},
				{"denied name", "a.denied.test:443", "403", "denied by rule", "denied"},
				{"bad port", "127.0.0.1:99999", "502", "port", "other"},
			} {
				t.Run(c.name, func(t *testing.T) {
					before := Metric(r.Metrics.Registry, `fairlead_tunnel_server_dial_errors_total{kind="`+c.kind+`"}`)
					if conn, err := GRPC(r.GRPC)(t.Context(), c.addr); err == nil {
						_ = conn.Close()
						t.Error("dial succeeded")
					} else if !strings.Contains(err.Error(), c.text) {
						t.Errorf("GRPC: %v, want %q", err, c.text)
					}
					if conn, err := Connect(r.Connect)(t.Context(), c.addr); err == nil {
						_ = conn.Close()
						t.Error("dial succeeded")
					} else if !strings.Contains(err.Error(), c.status) {
						t.Errorf("HTTP CONNECT: %v, want status %s", err, c.status)
					}
					if n := Metric(r.Metrics.Registry, `fairlead_tunnel_server_dial_errors_total{kind="`+c.kind+`"}`); n != before+2 {
						t.Errorf("metric counts %v failures of kind %s, want 2", n-before, c.kind)
					}
					reason := map[string]string{"other": "unknown"}[c.kind]
					if reason == "" {
						reason = c.kind
					}
					if Metric(a.Metrics.Registry, `konnectivity_network_proxy_agent_endpoint_dial_failure_total{reason="`+reason+`"}`) < 2 {
						t.Errorf("the agent does not count reason %s", reason)
					}
				})
			}
		})
	}
}

// TestStatusLines checks that kinds of failures with the same HTTP status have different
// status lines. kube-apiserver passes on only the status line of an answer to HTTP
// CONNECT.
func TestStatusLines(t *testing.T) {
	t.Parallel()
	hole := BlackHole(t)
	for _, upstreamOnly := range []bool{false, true} {
		r := NewRig(t, server.Config{Protocol: Only(upstreamOnly)})
		r.StartAgent(agent.Config{DialTimeout: 500 * time.Millisecond}, "")
		for addr, want := range map[string]string{
			"127.0.0.1:1":               "502 refused: dial tcp 127.0.0.1:1: connect: connection refused",
			hole:                        "504 timeout: dial tcp " + hole + ": i/o timeout",
			"255.255.255.255:80":        "502 no_route: dial tcp 255.255.255.255:80: connect: network is unreachable",
			"does-not-exist.invalid:80": "502 dns: dial tcp: lookup does-not-exist.invalid",
		} {
			if got := statusLine(t, r.Connect, addr); !strings.HasPrefix(got, want) {
				t.Errorf("upstream=%v: status %q, want %q", upstreamOnly, got, want)
			}
		}
	}
}

// statusLine asks for a connection over a socket and reads the status as kube-apiserver
// does.
func statusLine(t *testing.T, socket, addr string) string {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(Patience))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", addr)
	res, err := http.ReadResponse(bufio.NewReader(io.LimitReader(c, http.DefaultMaxHeaderBytes)), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.Status
}

// TestLongAddress checks that the server refuses an address that no agent would accept,
// and that no agent's link is affected.
func TestLongAddress(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{})
	r.StartAgent(agent.Config{}, "")
	healthy := MustDial(t, GRPC(r.GRPC), Target(t, Echo))
	bad := func() float64 {
		return Metric(r.Metrics.Registry, `fairlead_tunnel_server_bad_input_total{peer="client"}`)
	}
	for _, c := range []struct {
		dial Dialer
		n    int
	}{{GRPC(r.GRPC), 100_000}, {GRPC(r.GRPC), 1025}, {Connect(r.Connect), 1025}} {
		before := bad()
		conn, err := c.dial(t.Context(), strings.Repeat("a", c.n-len(":80"))+":80")
		if err == nil {
			_ = conn.Close()
			t.Fatal("dial succeeded")
		}
		if !strings.Contains(err.Error(), fmt.Sprintf("address has %d bytes", c.n)) && !strings.Contains(err.Error(), "400") {
			t.Errorf("%d bytes: %v", c.n, err)
		}
		if bad() == before {
			t.Errorf("%d bytes: not counted", c.n)
		}
	}
	_, _ = healthy.Write([]byte{7})
	if _, err := readFull(healthy, make([]byte, 1), Patience); err != nil {
		t.Errorf("a connection through the agent: %v", err)
	}
}

// TestAddressIsNoText checks that the server refuses an address that is not UTF-8, and
// that no agent is affected. An upstream agent would end its stream over such an address.
func TestAddressIsNoText(t *testing.T) {
	t.Parallel()
	for name, upstreamOnly := range map[string]bool{"link": false, "upstream": true} {
		t.Run(name, func(t *testing.T) {
			r := NewRig(t, server.Config{Protocol: Only(upstreamOnly)})
			r.StartAgent(agent.Config{}, "")
			healthy := MustDial(t, GRPC(r.GRPC), Target(t, Echo))
			for _, host := range []string{"\xff", "%ff", "a\xc3\x28"} {
				before := Metric(r.Metrics.Registry, `fairlead_tunnel_server_bad_input_total{peer="client"}`)
				if status := statusLine(t, r.Connect, host+":80"); !strings.HasPrefix(status, "400") {
					t.Errorf("%q: %s", host, status)
				}
				if Metric(r.Metrics.Registry, `fairlead_tunnel_server_bad_input_total{peer="client"}`) == before {
					t.Errorf("%q is not counted", host)
				}
			}
			_, _ = healthy.Write([]byte{7})
			if _, err := readFull(healthy, make([]byte, 1), Patience); err != nil {
				t.Errorf("a connection through the agent: %v", err)
			}
		})
	}
}

// TestLimits checks that what exceeds a limit is refused with an error that names the
// limit, and counted. Existing connections and links continue, and freed places are used
// again.
func TestLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		server server.Config
		agent  agent.Config
		text   string
	}{
		"connections of the server": {server.Config{MaxConns: 2}, agent.Config{}, "server has 2 connections and dials, its limit"},
		"connections of the agent":  {server.Config{}, agent.Config{MaxConns: 2}, "agent has 2 connections and dials, its limit"},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRig(t, c.server)
			r.StartAgent(c.agent, "")
			addr := Target(t, Echo)
			first, second := MustDial(t, GRPC(r.GRPC), addr), MustDial(t, Connect(r.Connect), addr)
			if _, err := GRPC(r.GRPC)(t.Context(), addr); err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("GRPC: %v, want %q", err, c.text)
			}
			if _, err := Connect(r.Connect)(t.Context(), addr); err == nil || !strings.Contains(err.Error(), "503") {
				t.Errorf("HTTP CONNECT: %v, want 503", err)
			}
			if n := Metric(r.Metrics.Registry, `fairlead_tunnel_server_dial_errors_total{kind="limit"}`); n != 2 {
				t.Errorf("metric counts %v, want 2", n)
			}
			_, _ = first.Write([]byte{1})
			if _, err := readFull(first, make([]byte, 1), Patience); err != nil {
				t.Errorf("a connection within the limit: %v", err)
			}
			_ = second.Close()
			Eventually(t, Patience, "the room is used again", func() bool {
				conn, err := Connect(r.Connect)(t.Context(), addr)
				if err == nil {
					_ = conn.Close()
				}
				return err == nil
			})
		})
	}
	t.Run("pending dials", func(t *testing.T) {
		r := NewRig(t, server.Config{MaxPending: 1})
		p := NewProxy(t, r.AgentTLS)
		r.StartAgent(agent.Config{}, p.Addr)
		p.Freeze(true)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _, _ = Connect(r.Connect)(ctx, "127.0.0.1:1") }()
		Eventually(t, Patience, "a dial is pending", func() bool { return r.Server.Established() == 1 })
		if _, err := Connect(r.Connect)(t.Context(), "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "503") {
			t.Errorf("got %v, want 503", err)
		}
		cancel()
		<-done
	})
	t.Run("agents", func(t *testing.T) {
		r := NewRig(t, server.Config{MaxAgents: 1})
		r.StartAgent(agent.Config{}, "")
		b := r.LaunchAgent(agent.Config{}, "")
		Eventually(t, Patience, "a refusal is counted", func() bool {
			return Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="limit"}`) > 0
		})
		if b.Ready() {
			t.Error("an agent beyond the limit is connected")
		}
	})
}
