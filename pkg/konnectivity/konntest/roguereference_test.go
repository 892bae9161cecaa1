package konntest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/wire"
)

// rogueStream is what a rogue upstream agent gets.
type rogueStream struct {
	dials  chan wire.Packet
	closed chan error
	dec    wire.StreamDecoder
}

func (*rogueStream) Headers([]h2.Field)             {}
func (s *rogueStream) Data(p []byte) error          { return s.dec.Feed(p, s) }
func (*rogueStream) End()                           {}
func (s *rogueStream) Closed(err error)             { s.closed <- err }
func (*rogueStream) HandleData(int64, []byte) error { return nil }
func (s *rogueStream) HandlePacket(p *wire.Packet) error {
	if p.Type == wire.DialReq {
		s.dials <- *p
	}
	return nil
}

// TestRogueReference: the same for agents of the reference protocol.
func TestRogueReference(t *testing.T) {
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
			nc := r.connectRogue(t, "h2")
			_ = nc.SetDeadline(time.Time{})
			conn := h2.NewClient(nc, h2.Config{})
			s := &rogueStream{dials: make(chan wire.Packet, 10), closed: make(chan error, 1)}
			st := conn.Open([]h2.Field{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: "/AgentService/Connect"},
				{Name: ":authority", Value: "x"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
				{Name: "agentid", Value: "rogue"}, {Name: "agentidentifiers", Value: "host=" + rogueHost}}, s)
			served := make(chan struct{})
			go func() { defer close(served); _ = conn.Serve() }()
			defer func() { conn.Close(); <-served }()
			Eventually(t, Patience, "the agent is there", func() bool {
				return Metric(r.Metrics.Registry, `fairlead_tunnel_server_links{protocol="reference"}`) == 1
			})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				if c, err := Connect(r.Connect)(ctx, rogueHost+":80"); err == nil {
					_ = c.Close()
				}
			}()
			st.SendControl(c.send(<-s.dials))
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
			if !c.bad && !c.never && r.badInput() > before {
				t.Error("it is counted as bad input")
			}
			conn.Close()
			Eventually(t, Patience, "the agent is gone", func() bool {
				return Metric(r.Metrics.Registry, `fairlead_tunnel_server_links{protocol="reference"}`) == 0
			})
		})
	}
}

// TestRogueClaims: identifiers that cannot be read, and several sets of them, are
// refused by both protocols.
func TestRogueClaims(t *testing.T) {
	for _, reference := range []bool{false, true} {
		t.Run(fmt.Sprintf("reference=%v", reference), func(t *testing.T) {
			r := NewRig(t, server.Config{ReferenceOnly: reference})
			a := r.LaunchAgent(agent.Config{Identifiers: "%zz"}, "")
			Eventually(t, Patience, "it is counted", func() bool {
				return Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="identifiers"}`) > 0
			})
			if a.Ready() {
				t.Error("agent is connected")
			}
		})
	}
}
