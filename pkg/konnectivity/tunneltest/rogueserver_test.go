// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"bytes"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tlsreload"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// rogueServers is an agent with a connection through a good server, which looks for
// another server where the rogue listens.
type rogueServers struct {
	logs
	agent   *Agent
	listen  net.Listener
	addr    string // where the agent connects
	healthy net.Conn
}

func newRogueServers(t *testing.T, proto string) *rogueServers {
	t.Helper()
	good := NewRig(t, server.Config{ServerCount: 2})
	crt, key := good.CA.Issue(t, "rogue server", time.Now().Add(time.Hour))
	loader := newLoader(t, tlsreload.Files{Cert: crt, Key: key}, logr.Logger{})
	r := &rogueServers{}
	var err error
	r.listen, err = tls.Listen("tcp", "127.0.0.1:0", loader.Server(&tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{proto}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.listen.Close() })
	p := NewProxy(t, good.AgentTLS)
	r.addr = p.Addr
	r.agent = good.StartAgent(agent.Config{Logger: r.logger(), SyncInterval: 10 * time.Millisecond, SyncIntervalCap: 20 * time.Millisecond,
		Link: link.Config{Window: 64 << 10, MaxWindow: 64 << 10}}, p.Addr)
	r.healthy = MustDial(t, GRPC(good.GRPC), Target(t, Echo))
	p.To(r.listen.Addr().String())
	return r
}

func (r *rogueServers) broken(rule string) float64 {
	return Metric(r.agent.Metrics.Registry, `fairlead_tunnel_agent_violations_total{rule="`+rule+`"}`)
}

// unharmed checks the connection through the good server.
func (r *rogueServers) unharmed(t *testing.T) {
	t.Helper()
	_, _ = r.healthy.Write([]byte{7})
	if _, err := readFull(r.healthy, make([]byte, 1), Patience); err != nil {
		t.Fatalf("a connection through another server: %v", err)
	}
}

// TestRogueServer: what a server sends an agent against the rules of the link is
// counted each time and logged once with the server, also when the agent has connected
// again; the agent's other servers do not notice.
func TestRogueServer(t *testing.T) {
	t.Parallel()
	r := newRogueServers(t, link.ALPN)
	stay := make(chan struct{})
	defer close(stay)
	silent := Target(t, func(net.Conn) { <-stay })
	for name, c := range map[string]struct {
		in         []byte // stream 1 is open
		rule, text string // as it is counted and logged
	}{
		"FIN twice":           {append(frame(fFin, 1, ""), frame(fFin, 1, "")...), "end is sent twice", ""},
		"data behind the end": {append(frame(fFin, 1, ""), frame(fData, 1, "x")...), "data behind the end", ""},
		"too much credit":     {frame(fCredit, 1, "\x7f\xff\xff\xff"), "credit is too large", ""},
		"beyond the window":   {nil, "data beyond the window", ""},
		"DATA, never opened":  {frame(fData, 99, "x"), "protocol", "never opened"},
		"FIN, never opened":   {frame(fFin, 99, ""), "protocol", "never opened"},
		"RESET, stream 0":     {frame(fReset, 0, ""), "protocol", "never opened"},
		"DIAL, used number":   {frame(fDial, 1, silent), "protocol", "used number"},
		"DIAL, number 0":      {frame(fDial, 0, silent), "protocol", "used number"},
		"DIALED":              {frame(fDialed, 1, ""), "protocol", "answer to a dial"},
		"DIALFAIL":            {frame(fDialFail, 1, "x"), "protocol", "answer to a dial"},
		"HELLO":               {frame(fHello, 0, ""), "protocol", "second handshake"},
		"WELCOME":             {frame(fWelcome, 0, ""), "protocol", "second handshake"},
		"REFUSE":              {frame(fRefuse, 0, "no"), "protocol", "second handshake"},
		"empty DATA":          {frame(fData, 1, ""), "protocol", "DATA with"},
		"oversized DATA":      {[]byte{fData, 0xff, 0xff, 0xff, 0, 0, 0, 1}, "protocol", "DATA with"},
		"oversized control":   {[]byte{fReset, 0xff, 0xff, 0xff, 0, 0, 0, 1}, "protocol", "frame of type"},
		"short PING":          {frame(fPing, 0, "abc"), "protocol", "PING with"},
		"short CREDIT":        {frame(fCredit, 1, "abc"), "protocol", "CREDIT with"},
	} {
		t.Run(name, func(t *testing.T) {
			text := c.text
			if text == "" {
				text = c.rule
			}
			for range 2 {
				nc := acceptDialed(t, r.listen, silent)
				before := r.broken(c.rule)
				_, _ = nc.Write(c.in)
				for c.in == nil && r.broken(c.rule) == before { // until all buffers on the way are full
					if _, err := nc.Write(frame(fData, 1, strings.Repeat("x", 65_000))); err != nil {
						t.Fatal(err)
					}
				}
				Eventually(t, Patience, "it is counted", func() bool { return r.broken(c.rule) > before })
				_ = nc.Close()
			}
			r.wantOneOf(t, text, "rogue server", r.addr)
			r.unharmed(t)
		})
	}
	r.wantOneOf(t, `Connected to a server address="`+r.addr+`" server="rogue server"`)
}

// TestUnknownFramesOfServer: an agent skips frames of types that it does not know, counts
// them and says so once.
func TestUnknownFramesOfServer(t *testing.T) {
	t.Parallel()
	r := newRogueServers(t, link.ALPN)
	nc := accept(t, r.listen)
	_, _ = nc.Write(append(append(frame(200, 5, "from the future"), frame(201, 0, "")...), frame(fPing, 0, "12345678")...))
	next(t, nc, fPong)
	if n := Metric(r.agent.Metrics.Registry, "fairlead_tunnel_agent_unknown_frames_total"); n != 2 {
		t.Errorf("%v are counted, want 2", n)
	}
	r.wantOneOf(t, "unknown type", "rogue server", r.addr)
	r.unharmed(t)
}

// TestRogueUpstreamServer: the same for servers of upstream's protocol.
func TestRogueUpstreamServer(t *testing.T) {
	t.Parallel()
	r := newRogueServers(t, "h2")
	msg := func(p wire.Packet) []byte { return wire.AppendMessage(nil, &p) }
	dial := msg(wire.Packet{Payload: wire.DialReq, Protocol: "tcp", Address: Target(t, Echo), Random: 1})
	for name, c := range map[string]struct {
		in         []byte
		rule, text string // as it is counted and logged
	}{
		"garbage":        {[]byte("\x00\x00\x00\x00\x03\xff\xff\xff"), "packet", "packet is"},
		"compressed":     {[]byte("\x01\x00\x00\x00\x01x"), "packet", "compressed"},
		"oversized":      {[]byte("\x00\xff\xff\xff\xffx"), "packet", "larger than"},
		"DIAL_RSP":       {msg(wire.Packet{Payload: wire.DialRsp, Random: 1, ConnID: 1}), "packet", "DIAL_RSP"},
		"CLOSE_RSP":      {msg(wire.Packet{Payload: wire.CloseRsp, ConnID: 1}), "packet", "CLOSE_RSP"},
		"DRAIN":          {msg(wire.Packet{Payload: wire.Drain}), "packet", "DRAIN"},
		"dial twice":     {bytes.Repeat(dial, 50), "packet", "dial number"},
		"data of none":   {append(wire.AppendDataHead(nil, 77, 1), 'x'), "unknown connection", "DATA for connection"},
		"close of none":  {msg(wire.Packet{Payload: wire.CloseReq, ConnID: 77}), "unknown connection", "CLOSE_REQ for connection"},
		"not the HTTP/2": {nil, "protocol", "link to server"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				nc, st := r.acceptUpstream(t)
				before := r.broken(c.rule)
				if c.in == nil { // DATA on a stream that never was
					_, _ = nc.Write([]byte("\x00\x00\x01\x00\x00\x00\x00\x00\x07x"))
				} else {
					st.SendControl(c.in)
				}
				Eventually(t, Patience, "it is counted", func() bool { return r.broken(c.rule) > before })
				_ = nc.Close()
			}
			if c.in != nil { // ends of links differ
				r.wantOneOf(t, c.text, r.addr)
			}
			r.unharmed(t)
		})
	}
}

// acceptUpstream accepts an agent as the server "rogue server" of upstream's protocol.
func (r *rogueServers) acceptUpstream(t *testing.T) (net.Conn, *rogueStream) {
	t.Helper()
	connected := func(n float64) func() bool {
		return func() bool {
			return Metric(r.agent.Metrics.Registry, "konnectivity_network_proxy_agent_open_server_connections") == n
		}
	}
	Eventually(t, Patience, "the last link is gone", connected(1))
	nc, err := r.listen.Accept()
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan *rogueStream, 16)
	conn := h2.NewServer(nc, h2.Config{OnStream: func(st *h2.Stream, _ []h2.Field) {
		s := &rogueStream{Stream: st, packets: make(chan wire.Packet, 100), closed: make(chan error, 1)}
		st.SetHandler(s)
		st.WriteHeaders([]h2.Field{{Name: ":status", Value: "200"}, {Name: "content-type", Value: "application/grpc"},
			{Name: "serverid", Value: "rogue server"}, {Name: "servercount", Value: "2"}})
		st.Flush()
		opened <- s
	}})
	served := make(chan struct{})
	go func() { defer close(served); _ = conn.Serve() }()
	t.Cleanup(func() { conn.Close(); <-served })
	select {
	case s := <-opened:
		Eventually(t, Patience, "the agent is connected", connected(2)) // until then it is a failure to connect
		return nc, s
	case <-time.After(Patience):
		t.Fatal("the agent does not call")
		return nil, nil
	}
}

// acceptDialed returns a connection of the agent whose stream 1 leads to an address. The agent ends a connection to a
// server to which it still has another one: after a broken connection it may come twice.
func acceptDialed(t *testing.T, l net.Listener, address string) (nc net.Conn) {
	t.Helper()
	testutil.Eventually(t, Patience, func() error {
		nc = accept(t, l)
		_, _ = nc.Write(frame(fDial, 1, address))
		_, _, err := tryNext(nc, fDialed)
		return err
	})
	return nc
}

// accept accepts an agent as the server "rogue server".
func accept(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(Patience))
	if _, err := link.ReadHello(nc); err != nil {
		t.Fatal(err)
	}
	if err := link.SendWelcome(nc, link.Welcome{ServerID: "rogue server", ServerCount: 2, Window: 1 << 18, Links: 1}); err != nil {
		t.Fatal(err)
	}
	return nc
}
