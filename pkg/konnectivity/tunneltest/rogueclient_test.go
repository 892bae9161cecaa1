// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// rogueClients has a server that remembers what it logs.
type rogueClients struct {
	*Rig
	logs
}

func newRogueClients(t *testing.T) *rogueClients {
	r := &rogueClients{}
	r.Rig = NewRig(t, server.Config{Logger: r.logger(), LogAgain: 1})
	r.StartAgent(agent.Config{}, "")
	return r
}

func (r *rogueClients) badInput() float64 {
	return Metric(r.Metrics.Registry, `fairlead_tunnel_server_bad_input_total{peer="client"}`)
}

// open opens a stream to a method.
func (r *rogueClients) open(t *testing.T, method string) *rogueStream {
	t.Helper()
	nc, err := net.Dial("unix", r.GRPC)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := openRogue(t, nc, method)
	return s
}

// TestRogueClient: what a client sends against the rules is counted, and logged once
// with who it is; its other connections go on.
func TestRogueClient(t *testing.T) {
	t.Parallel()
	r := newRogueClients(t)
	for _, sub := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"unknown method", r.unknownMethod},
		{"garbage", r.garbage},
		{"cut off within a message", r.cutOff},
		{"ended between messages", r.endedInOrder},
		{"packet of an agent", r.packetOfAgent},
		{"unknown type", r.unknownType},
		{"window beyond what there is", r.window},
		{"long address", r.longAddress},
		{"CONNECT, nothing", r.connectNothing},
		{"connections that are not there", r.strayPackets},
	} {
		t.Run(sub.name, sub.run)
	}
	for name, c := range map[string]struct{ in, text string }{
		"CONNECT, cut off":   {"CONNECT 127.0.0.1:1 HT", "cut off after 22 bytes"},
		"CONNECT, garbage":   {"\x00\xff\r\n\r\n", "malformed HTTP"},
		"CONNECT, oversized": {"CONNECT x:1 HTTP/1.1\r\nA: " + strings.Repeat("a", 40<<10), "larger than"},
		"GET":                {"GET / HTTP/1.1\r\n\r\n", "only supports CONNECT"},
	} {
		t.Run(name, func(t *testing.T) {
			before := r.badInput()
			nc, err := net.Dial("unix", r.Connect)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			_, _ = nc.Write([]byte(c.in))
			_ = nc.(*net.UnixConn).CloseWrite()
			if answer, err := io.ReadAll(nc); !strings.HasPrefix(string(answer), "HTTP/1.1 4") {
				t.Errorf("answered %q, %v", answer, err)
			}
			r.wantBad(t, before, c.text)
		})
	}
}

// wantBad waits until one bad input more is counted, and one line with the text is logged.
func (r *rogueClients) wantBad(t *testing.T, before float64, text string) {
	t.Helper()
	Eventually(t, Patience, "it is counted and logged", func() bool { return r.badInput() == before+1 && len(r.logged(text)) > 0 })
	if lines := r.logged(text); len(lines) != 1 || !strings.Contains(lines[0], thisProcess) {
		t.Errorf("logged %q, want one line with %q", lines, thisProcess)
	}
}

// thisProcess is how the server logs clients of this test.
var thisProcess = fmt.Sprintf("process %d", os.Getpid())

func (r *rogueClients) unknownMethod(t *testing.T) {
	before := r.badInput()
	r.open(t, "/Nothing/Of")
	r.wantBad(t, before, "/Nothing/Of")
}

func (r *rogueClients) garbage(t *testing.T) {
	before := r.badInput()
	s := r.open(t, "/ProxyService/Proxy")
	s.SendControl([]byte("\x01\x00\x00\x00\x01x"))
	t.Logf("closed: %v", <-s.closed)
	r.wantBad(t, before, "bad packet")
}

func (r *rogueClients) cutOff(t *testing.T) {
	before := r.badInput()
	s := r.open(t, "/ProxyService/Proxy")
	s.SendControl([]byte("\x00\x00\x00\x00\x05x"))
	s.Finish(nil)
	r.wantBad(t, before, "within a message")
}

func (r *rogueClients) endedInOrder(t *testing.T) {
	before := r.badInput()
	s := r.open(t, "/ProxyService/Proxy")
	s.Finish(nil)
	t.Logf("the stream ended: %v", <-s.closed)
	if r.badInput() != before {
		t.Error("an orderly end is counted")
	}
}

func (r *rogueClients) packetOfAgent(t *testing.T) {
	before := r.badInput()
	s := r.open(t, "/ProxyService/Proxy")
	s.send(wire.Packet{Payload: wire.Drain})
	r.wantBad(t, before, "DRAIN, which a client never sends")
	s.send(wire.Packet{Payload: wire.DialReq, Protocol: "tcp", Address: Target(t, Echo), Random: 1})
	if p := s.next(t, wire.DialRsp); p.Error != "" {
		t.Errorf("the stream does not go on: %s", p.Error)
	}
}

func (r *rogueClients) unknownType(t *testing.T) {
	before := r.badInput()
	s := r.open(t, "/ProxyService/Proxy")
	for range 2 {
		s.SendControl([]byte("\x00\x00\x00\x00\x02\x08\x63"))
	}
	s.send(wire.Packet{Payload: wire.DialReq, Protocol: "tcp", Address: Target(t, Echo), Random: 1})
	if p := s.next(t, wire.DialRsp); p.Error != "" {
		t.Errorf("the stream does not go on: %s", p.Error)
	}
	r.wantOneOf(t, `Skipping packets`, `type="`, thisProcess)
	if n := Metric(r.Metrics.Registry, "fairlead_tunnel_server_unknown_frames_total"); n != 2 || r.badInput() != before {
		t.Errorf("%v unknown packets are counted and %v as bad input, want 2 and none", n, r.badInput()-before)
	}
}

func (r *rogueClients) window(t *testing.T) {
	before := r.badInput()
	nc, err := net.Dial("unix", r.GRPC)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_, _ = io.WriteString(nc, http2.ClientPreface)
	fr := http2.NewFramer(nc, nc)
	_ = fr.WriteSettings()
	_ = fr.WriteWindowUpdate(0, 1<<31-1)
	if _, err := io.Copy(io.Discard, nc); err != nil {
		t.Errorf("the connection stays: %v", err)
	}
	r.wantBad(t, before, "connection window")
}

func (r *rogueClients) longAddress(t *testing.T) {
	before := r.badInput()
	s := r.open(t, "/ProxyService/Proxy")
	s.send(wire.Packet{Payload: wire.DialReq, Protocol: "tcp", Address: strings.Repeat("x", 5000) + ":1", Random: 1})
	if p := s.next(t, wire.DialRsp); p.Error == "" {
		t.Error("the dial succeeds")
	}
	r.wantBad(t, before, "address has 5002 bytes")
}

func (r *rogueClients) connectNothing(t *testing.T) { // as probes do
	before := r.badInput()
	nc, err := net.Dial("unix", r.Connect)
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.(*net.UnixConn).CloseWrite()
	_, _ = io.ReadAll(nc)
	_ = nc.Close()
	if r.badInput() != before {
		t.Error("a connection without a request is counted")
	}
}

func (r *rogueClients) strayPackets(t *testing.T) {
	strays := func(typ wire.Type) float64 {
		return Metric(r.Metrics.Registry, `fairlead_tunnel_server_stray_packets_total{peer="client",packet_type="`+typ.String()+`"}`)
	}
	s := r.open(t, "/ProxyService/Proxy")
	echo := Target(t, Echo)
	ids := [2]int64{}
	for i := range ids {
		s.send(wire.Packet{Payload: wire.DialReq, Protocol: "tcp", Address: echo, Random: int64(i + 1)})
		if ids[i] = s.next(t, wire.DialRsp).ConnID; ids[i] == 0 {
			t.Fatal("dial failed")
		}
	}
	before := r.badInput()
	for range 2 { // the second time by mistake, which is counted and does no harm
		s.send(wire.Packet{Payload: wire.CloseReq, ConnID: ids[0]})
		s.next(t, wire.CloseRsp)
	}
	if n := strays(wire.CloseReq); n != 1 {
		t.Errorf("%v stray closes are counted, want 1", n)
	}
	for range 3 {
		s.SendControl(append(wire.AppendDataHead(nil, 1<<40, 1), 'x'))
		s.next(t, wire.CloseRsp)
	}
	if n := strays(wire.Data); n != 3 {
		t.Errorf("%v stray packets of data are counted, want 3", n)
	}
	r.wantBad(t, before, "never had")
	s.SendControl(append(wire.AppendDataHead(nil, ids[1], 1), 'x'))
	Eventually(t, Patience, "the other connection goes on", func() bool {
		return Metric(r.Metrics.Registry, `konnectivity_network_proxy_server_stream_packets_total{segment="to_client",packet_type="DATA"}`) == 1
	})
}

// TestDialNumberTwice: a client that gives the number of a pending dial to another one
// loses the stream, which is counted and logged once; others go on.
func TestDialNumberTwice(t *testing.T) {
	t.Parallel()
	r := newRogueRig(t)
	slow := r.rogueLink(t) // leaves the first dial without an answer
	nc, err := net.Dial("unix", r.GRPC)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := openRogue(t, nc, "/ProxyService/Proxy")
	dial := wire.Packet{Payload: wire.DialReq, Protocol: "tcp", Address: rogueHost + ":80", Random: 7}
	s.send(dial)
	next(t, slow, fDial)
	s.send(dial)
	if err := <-s.closed; err == nil {
		t.Error("the stream ends in an orderly way")
	}
	Eventually(t, Patience, "it is counted", func() bool {
		return Metric(r.Metrics.Registry, `fairlead_tunnel_server_bad_input_total{peer="client"}`) == 1
	})
	r.wantOneOf(t, "used twice", fmt.Sprintf("process %d", os.Getpid()))
	r.unharmed(t)
}
