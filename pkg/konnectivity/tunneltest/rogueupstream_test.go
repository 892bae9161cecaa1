// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// rogueAgent is an agent of upstream's protocol that has been accepted.
func (r *rogueRig) rogueAgent(t *testing.T) (*rogueStream, func()) {
	t.Helper()
	nc := r.connectRogue(t, "h2")
	_ = nc.SetDeadline(time.Time{})
	s, end := openRogue(t, nc, "/AgentService/Connect", h2.Field{Name: "agentid", Value: "rogue"}, h2.Field{Name: "agentidentifiers", Value: "host=" + rogueHost})
	there := func(n float64) func() bool {
		return func() bool {
			return Metric(r.Metrics.Registry, `fairlead_tunnel_server_links{protocol="upstream"}`) == n
		}
	}
	Eventually(t, Patience, "the agent is there", there(1))
	return s, func() {
		end()
		Eventually(t, Patience, "the agent is gone", there(0))
	}
}

// TestRogueUpstream: the same for agents of upstream's protocol.
func TestRogueUpstream(t *testing.T) {
	t.Parallel()
	r := newRogueRig(t)
	msg := func(p *wire.Packet) []byte { return wire.AppendMessage(nil, p) }
	for name, c := range map[string]struct {
		send func(d wire.Packet) []byte
		bad  bool // counted, and the end of the stream
		// stray is the type of packet that is counted as such, and never whether it
		// is bad input because the connection never was.
		stray string
		never bool
	}{
		"garbage":                {func(wire.Packet) []byte { return []byte("\x00\x00\x00\x00\x03\xff\xff\xff") }, true, "", false},
		"compressed":             {func(wire.Packet) []byte { return []byte("\x01\x00\x00\x00\x01x") }, true, "", false},
		"oversized":              {func(wire.Packet) []byte { return []byte("\x00\xff\xff\xff\xffx") }, true, "", false},
		"unknown type":           {func(wire.Packet) []byte { return []byte("\x00\x00\x00\x00\x02\x08\x63") }, false, "", false},
		"answer to nothing":      {func(wire.Packet) []byte { return msg(&wire.Packet{Payload: wire.DialRsp, Random: 1, ConnID: 5}) }, false, "DIAL_RSP", false},
		"data of no connection":  {func(wire.Packet) []byte { return append(wire.AppendDataHead(nil, 77, 1), 'x') }, false, "DATA", true},
		"close of no connection": {func(wire.Packet) []byte { return msg(&wire.Packet{Payload: wire.CloseRsp, ConnID: 77}) }, false, "CLOSE_RSP", true},
		"close twice": {func(d wire.Packet) []byte {
			b := msg(&wire.Packet{Payload: wire.DialRsp, Random: d.Random, ConnID: 5})
			for range 2 {
				b = append(b, msg(&wire.Packet{Payload: wire.CloseRsp, ConnID: 5})...)
			}
			return b
		}, false, "CLOSE_RSP", false},
		"number used twice": {func(d wire.Packet) []byte {
			b := msg(&wire.Packet{Payload: wire.DialRsp, Random: d.Random, ConnID: 5})
			return append(b, msg(&wire.Packet{Payload: wire.DialRsp, Random: d.Random, ConnID: 5})...)
		}, false, "DIAL_RSP", false},
	} {
		t.Run(name, func(t *testing.T) {
			before := r.badInput()
			strays := func() float64 {
				return Metric(r.Metrics.Registry, `fairlead_tunnel_server_stray_packets_total{peer="agent",packet_type="`+c.stray+`"}`)
			}
			strayed := strays()
			s, end := r.rogueAgent(t)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				if c, err := Connect(r.Connect)(ctx, rogueHost+":80"); err == nil {
					_ = c.Close()
				}
			}()
			s.SendControl(c.send(s.next(t, wire.DialReq)))
			if c.bad {
				t.Log("the stream ended:", <-s.closed)
				Eventually(t, Patience, "it is counted", func() bool { return r.badInput() > before })
			}
			if c.stray != "" {
				Eventually(t, Patience, "the stray packet is counted", func() bool { return strays() > strayed })
			}
			if c.never {
				Eventually(t, Patience, "it is counted as bad input", func() bool { return r.badInput() > before })
			}
			cancel()
			<-done
			r.unharmed(t)
			switch {
			case c.bad || c.never:
				r.wantOneOf(t, s.local, `"rogue"`)
			case name == "unknown type":
				r.wantOneOf(t, s.local, `"rogue"`, "Skipping packets")
				if n := Metric(r.Metrics.Registry, "fairlead_tunnel_server_unknown_frames_total"); n != 1 || r.badInput() > before {
					t.Errorf("%v unknown packets are counted and %v as bad input, want 1 and none", n, r.badInput()-before)
				}
			case r.badInput() > before || len(r.logged(s.local)) > 0:
				t.Errorf("it is taken for bad input: %q", r.logged(s.local))
			}
			end()
		})
	}
}

// TestNumberGivenTwice: a connection number that is in use already fails the dial that
// it is given to, is counted once for each and logged once; the connection that has
// the number goes on.
func TestNumberGivenTwice(t *testing.T) {
	t.Parallel()
	r := newRogueRig(t)
	s, _ := r.rogueAgent(t)
	before := r.badInput()
	first := make(chan error, 1)
	go func() {
		c, err := Connect(r.Connect)(t.Context(), rogueHost+":1")
		if err == nil {
			_, err = readFull(c, make([]byte, 1), Patience)
			_ = c.Close()
		}
		first <- err
	}()
	s.send(wire.Packet{Payload: wire.DialRsp, Random: s.next(t, wire.DialReq).Random, ConnID: 5})
	for range 2 {
		failed := make(chan error, 1)
		go func() {
			c, err := Connect(r.Connect)(t.Context(), rogueHost+":2")
			if err == nil {
				_ = c.Close()
			}
			failed <- err
		}()
		s.send(wire.Packet{Payload: wire.DialRsp, Random: s.next(t, wire.DialReq).Random, ConnID: 5})
		if <-failed == nil {
			t.Error("a dial with a used number succeeds")
		}
	}
	s.SendControl(append(wire.AppendDataHead(nil, 5, 1), 'x'))
	if err := <-first; err != nil {
		t.Errorf("the connection that has the number: %v", err)
	}
	if n := r.badInput() - before; n != 2 {
		t.Errorf("counted %v times, want 2", n)
	}
	if lines := r.logged("number 5"); len(lines) != 1 || !strings.Contains(lines[0], `"rogue"`) {
		t.Errorf("logged %q, want one line with the agent", lines)
	}
	r.unharmed(t)
}

// TestRogueHTTP2: an agent that does not speak HTTP/2 as it should is counted and
// logged with its address.
func TestRogueHTTP2(t *testing.T) {
	t.Parallel()
	r := newRogueRig(t)
	for name, in := range map[string]string{
		"another protocol": "GET / HTTP/1.1\r\n\r\n",
		"oversized frame":  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x04\x00\x00\x00\x00\x00",
		"DATA, no stream":  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x01\x00\x00\x00\x00\x00\x07x",
	} {
		before := r.badInput()
		nc := r.connectRogue(t, "h2")
		_, _ = nc.Write([]byte(in))
		_, _ = io.Copy(io.Discard, nc)
		Eventually(t, Patience, name+" is counted", func() bool { return r.badInput() == before+1 })
		r.wantOneLine(t, nc.LocalAddr())
	}
	r.unharmed(t)
}

// TestRogueClaims: identifiers that cannot be read, and several sets of them, are
// refused by both protocols. New connections through another agent succeed meanwhile.
func TestRogueClaims(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			t.Parallel()
			said := &logs{}
			r := NewRig(t, server.Config{Protocol: Only(upstreamOnly), Logger: said.logger()})
			r.StartAgent(agent.Config{}, "")
			load := StartLoad(t, GRPC(r.GRPC), Target(t, Echo), besideFaults)
			a := r.LaunchAgent(agent.Config{Identifiers: "%zz"}, "")
			Eventually(t, Patience, "each attempt is counted", func() bool {
				return Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="identifiers"}`) > 1
			})
			said.wantOneOf(t, `reason="identifiers"`, `address="127.0.0.1:`)
			if a.Ready() {
				t.Error("agent is connected")
			}
			load.MoreDials(t, 10)
			load.NoneFailed(t)
		})
	}
}
