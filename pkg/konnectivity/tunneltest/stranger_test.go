// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// strangerTo makes a TLS connection to the agents' port, for upstream's protocol.
func strangerTo(t *testing.T, r *Rig) *tls.Conn {
	t.Helper()
	return dialAgentsPort(t, r, "h2")
}

// dialAgentsPort makes a TLS connection to the agents' port, with the rig's certificate for agents.
func dialAgentsPort(t *testing.T, r *Rig, proto string) *tls.Conn {
	t.Helper()
	cfg, err := r.AgentTLSConfig()()
	if err != nil {
		t.Fatal(err)
	}
	cfg.NextProtos = []string{proto}
	nc, err := tls.Dial("tcp", r.AgentTLS, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return nc
}

// wantEnd reads until the connection ends.
func wantEnd(t *testing.T, nc net.Conn) {
	t.Helper()
	_ = nc.SetReadDeadline(time.Now().Add(Patience))
	if _, err := io.Copy(io.Discard, nc); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection stays")
	}
}

// refuses accepts no token.
type refuses struct{}

func (refuses) Check(context.Context, string, string) (string, error) { return "", errors.New("no") }

// TestStranger: who makes a TLS connection to the agents' port and does not become an
// agent is cut off after the time for handshakes, and counted. An agent stays.
func TestStranger(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	refused := func(r *Rig, reason string) float64 {
		return Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="`+reason+`"}`)
	}
	for name, speak := range map[string]func(*tls.Conn){
		"silent": func(*tls.Conn) {}, "HTTP/2 without a call": func(nc *tls.Conn) {
			_, _ = nc.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := &logs{}
			r := NewRig(t, server.Config{HandshakeTimeout: limit, Logger: said.logger()})
			nc := strangerTo(t, r)
			speak(nc)
			wantEnd(t, nc)
			Eventually(t, Patience, "it is counted", func() bool { return refused(r, "handshake") == 1 })
			said.wantOneLine(t, nc.LocalAddr())
		})
	}
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		said := &logs{}
		r := NewRig(t, server.Config{HandshakeTimeout: limit, Tokens: refuses{}, Logger: said.logger()})
		nc := strangerTo(t, r)
		openRogue(t, nc, "/AgentService/Connect", h2.Field{Name: "agentid", Value: "stranger"})
		Eventually(t, Patience, "its token is refused", func() bool { return refused(r, "token") >= 1 })
		Eventually(t, Patience, "it is cut off", func() bool { return refused(r, "handshake") >= 1 })
		said.wantOneOf(t, `reason="token"`, nc.LocalAddr().String())
		said.wantOneOf(t, "no agent is connected", nc.LocalAddr().String())
	})
	t.Run("agent", func(t *testing.T) {
		t.Parallel()
		r := NewRig(t, server.Config{HandshakeTimeout: limit})
		a := r.StartAgent(agent.Config{Protocol: settings.ProtocolUpstream}, "")
		c := MustDial(t, GRPC(r.GRPC), Target(t, Echo))
		s, _ := openRogue(t, strangerTo(t, r), "/AgentService/Connect", h2.Field{Name: "agentid", Value: "other"})
		Eventually(t, Patience, "the other agent is there", func() bool { return r.Server.Connected("other") })
		wantEnd(t, strangerTo(t, r)) // so the limit has passed for the agents, too
		_, _ = c.Write([]byte{1})
		if _, err := readFull(c, make([]byte, 1), Patience); err != nil || !r.Server.Connected(a.ID) || !r.Server.Connected("other") {
			t.Errorf("an agent is cut off: %v", err)
		}
		Eventually(t, Patience, "the silent one is counted", func() bool { return refused(r, "handshake") == 1 })
		before := refused(r, "handshake")
		s.Reset(h2.CodeCancel)
		Eventually(t, Patience, "it is a stranger again, and cut off", func() bool { return refused(r, "handshake") > before })
	})
}

// TestStrangersTakeRoom: strangers and agents share the limit on agents.
func TestStrangersTakeRoom(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{MaxAgents: 1, Protocol: settings.ProtocolUpstream})
	nc := strangerTo(t, r)
	_ = nc.SetReadDeadline(time.Now().Add(Patience))
	if _, err := nc.Read(make([]byte, 1)); err != nil { // the server's settings
		t.Fatal(err)
	}
	a := r.LaunchAgent(agent.Config{}, "")
	Eventually(t, Patience, "an agent is refused", func() bool {
		return Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="limit"}`) > 0
	})
	if a.Ready() {
		t.Error("an agent beyond the limit is connected")
	}
	_ = nc.Close()
	Eventually(t, Patience, "the room is used", a.Ready)
}

// TestHandshakesAreBounded: peers that connect to the agents' port and say nothing cannot
// take all descriptors. Those beyond the bound are cut off and counted; when they are gone
// an agent gets in.
func TestHandshakesAreBounded(t *testing.T) {
	const bound = 1 + 1000 // --max-agents and moreHandshakes
	r := NewRig(t, server.Config{MaxAgents: 1, HandshakeTimeout: Patience})
	var silent []net.Conn
	for range bound + 1 {
		nc, err := net.Dial("tcp", r.AgentTLS)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		silent = append(silent, nc)
	}
	limited := func() float64 {
		return Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="limit"}`)
	}
	Eventually(t, Patience, "one is refused", func() bool { return limited() >= 1 })
	ended := 0
	for _, nc := range silent {
		_ = nc.SetReadDeadline(time.Now().Add(time.Millisecond))
		var ne net.Error
		if _, err := nc.Read(make([]byte, 1)); !errors.As(err, &ne) || !ne.Timeout() {
			ended++
		}
	}
	if ended != 1 || limited() != 1 {
		t.Errorf("%d of %d connections were cut off, %v are counted, want 1", ended, len(silent), limited())
	}
	for _, nc := range silent {
		_ = nc.Close()
	}
	r.StartAgent(agent.Config{}, "")
}
