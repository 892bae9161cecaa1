// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// Frame types of docs/tunnel-protocol.md. They are written out here, as an independent
// implementation would do.
const (
	fHello = iota + 1
	fWelcome
	fRefuse
	fDial
	fDialed
	fDialFail
	fData
	fFin
	fClose
	fReset
	fCredit
	fPing
	fPong
	fDrain
	fDrained
)

func frame(typ byte, stream uint32, payload string) []byte {
	b := []byte{typ, byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload))}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// rogueHost is the host that rogue agents claim to reach.
const rogueHost = "rogue.test"

// rogueRig has a healthy agent and a connection through it. The server sends dials to
// rogueHost to the agent that claims it.
type rogueRig struct {
	*Rig
	logs
	healthy net.Conn
}

func newRogueRig(t *testing.T) *rogueRig {
	r := &rogueRig{}
	r.Rig = NewRig(t, server.Config{Strategies: []server.Strategy{server.StrategyDestHost, server.StrategyDefaultRoute}, Logger: r.logger(), LogAgain: 1})
	r.StartAgent(agent.Config{Identifiers: "default-route=true"}, "")
	r.healthy = MustDial(t, GRPC(r.GRPC), Target(t, Echo))
	return r
}

func (r *rogueRig) badInput() float64 {
	return Metric(r.Metrics.Registry, `fairlead_tunnel_server_bad_input_total{peer="agent"}`)
}

// unharmed checks that the connection through the healthy agent still works.
func (r *rogueRig) unharmed(t *testing.T) {
	t.Helper()
	_, _ = r.healthy.Write([]byte{7})
	if _, err := readFull(r.healthy, make([]byte, 1), Patience); err != nil {
		t.Fatalf("a connection of another agent: %v", err)
	}
}

// connectRogue makes a TLS connection to the agents' port.
func (r *rogueRig) connectRogue(t *testing.T, proto string) *tls.Conn {
	t.Helper()
	nc := dialAgentsPort(t, r.Rig, proto)
	_ = nc.SetDeadline(time.Now().Add(Patience))
	return nc
}

// rogueLink returns the connection of a rogue agent that the server has accepted.
func (r *rogueRig) rogueLink(t *testing.T) *tls.Conn {
	t.Helper()
	links := func(n float64) func() bool {
		return func() bool {
			return Metric(r.Metrics.Registry, `fairlead_tunnel_server_links{protocol="fairlead"}`) == n
		}
	}
	Eventually(t, Patience, "the last rogue is gone", links(1))
	nc := r.connectRogue(t, link.ALPN)
	if _, err := link.SendHello(nc, link.Hello{AgentID: "rogue", Identifiers: "host=" + rogueHost, Window: 1 << 16}); err != nil {
		t.Fatal(err)
	}
	Eventually(t, Patience, "the rogue is there", links(2))
	return nc
}

// next returns the next frame of a type and skips others.
func next(t *testing.T, nc net.Conn, typ byte) (stream uint32, payload string) {
	t.Helper()
	stream, payload, err := tryNext(nc, typ)
	if err != nil {
		t.Fatal(err)
	}
	return stream, payload
}

// tryNext is next for a connection that may end.
func tryNext(nc net.Conn, typ byte) (stream uint32, payload string, err error) {
	for {
		var h [8]byte
		if _, err := io.ReadFull(nc, h[:]); err != nil {
			return 0, "", fmt.Errorf("waiting for frame type %d: %w", typ, err)
		}
		p := make([]byte, int(h[1])<<16|int(h[2])<<8|int(h[3]))
		if _, err := io.ReadFull(nc, p); err != nil {
			return 0, "", err
		}
		if h[0] == typ {
			return binary.BigEndian.Uint32(h[4:]), string(p), nil
		}
	}
}

// TestRogueLink checks that an agent that violates the link protocol loses its link. The
// server counts the violation, and no other agent is affected.
func TestRogueLink(t *testing.T) {
	t.Parallel()
	r := newRogueRig(t)
	for name, in := range map[string][]byte{
		"oversized DATA":      {fData, 0xff, 0xff, 0xff, 0, 0, 0, 1},
		"empty DATA":          frame(fData, 1, ""),
		"oversized control":   {fReset, 0xff, 0xff, 0xff, 0, 0, 0, 1},
		"DATA, never opened":  frame(fData, 99, "x"),
		"FIN, never opened":   frame(fFin, 99, ""),
		"DIALED, never asked": frame(fDialed, 99, ""),
		"stream 0":            frame(fData, 0, "x"),
		"DIAL to a server":    frame(fDial, 1, "127.0.0.1:1"),
		"second HELLO":        frame(fHello, 0, ""),
		"WELCOME to a server": frame(fWelcome, 0, ""),
		"PING of 3 bytes":     frame(fPing, 0, "abc"),
		"garbage":             []byte(strings.Repeat("\xa5\x5a garbage", 9000)),
	} {
		t.Run(name, func(t *testing.T) {
			before := r.badInput()
			nc := r.rogueLink(t)
			_, _ = nc.Write(in)
			if _, err := io.Copy(io.Discard, nc); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Error("the link stays")
			}
			Eventually(t, Patience, "it is counted", func() bool { return r.badInput() > before })
			r.wantOneLine(t, nc.LocalAddr())
			r.unharmed(t)
		})
	}
	t.Run("unknown types are skipped", func(t *testing.T) {
		before := r.badInput()
		nc := r.rogueLink(t)
		_, _ = nc.Write(append(append(frame(200, 5, "from the future"), frame(201, 0, "")...), frame(fPing, 0, "12345678")...))
		if _, p := next(t, nc, fPong); p != "12345678" {
			t.Errorf("pong %q", p)
		}
		if n := Metric(r.Metrics.Registry, "fairlead_tunnel_server_unknown_frames_total"); n != 2 || r.badInput() != before {
			t.Errorf("%v unknown frames are counted and %v as bad input, want 2 and none", n, r.badInput()-before)
		}
		r.wantOneLine(t, nc.LocalAddr())
		_, _ = nc.Write(frame(fData, 99, "x"))
		Eventually(t, Patience, "what follows is read", func() bool { return r.badInput() > before })
	})
	t.Run("DRAIN is answered once", func(t *testing.T) {
		nc := r.rogueLink(t)
		_, _ = nc.Write(append(bytes.Repeat(frame(fDrain, 0, ""), 3), frame(fPing, 0, "12345678")...))
		next(t, nc, fDrained)
		for {
			var h [8]byte
			if _, err := io.ReadFull(nc, h[:]); err != nil {
				t.Fatal(err)
			}
			if h[0] == fDrained {
				t.Fatal("DRAINED again")
			}
			if h[0] == fPong {
				break
			}
			_, _ = io.CopyN(io.Discard, nc, int64(h[1])<<16|int64(h[2])<<8|int64(h[3]))
		}
	})
	t.Run("cut off within a frame", func(t *testing.T) { cutOff(t, r) })
}

// cutOff ends links within frames. An agent that closes its connection there violates
// the protocol. An agent that was killed does not.
func cutOff(t *testing.T, r *rogueRig) {
	for _, in := range [][]byte{{fData}, frame(fData, 1, "hello")[:8], frame(fData, 1, "hello")[:10], frame(fPing, 0, "12345678")[:8]} {
		before := r.badInput()
		nc := r.rogueLink(t)
		_, _ = nc.Write(in)
		_ = nc.CloseWrite()
		_, _ = io.Copy(io.Discard, nc)
		Eventually(t, Patience, "it is counted", func() bool { return r.badInput() == before+1 })
		r.wantOneLine(t, nc.LocalAddr())
	}
	for _, linger := range []int{-1, 0} {
		before := r.badInput()
		nc := r.rogueLink(t)
		next(t, nc, fPing) // if bytes were left unread, closing would send a reset in any case
		_, _ = nc.Write(frame(fData, 1, "hello")[:10])
		tcp := nc.NetConn().(*net.TCPConn)
		_ = tcp.SetLinger(linger)
		_ = tcp.Close()
		Eventually(t, Patience, "the link ends", func() bool {
			return Metric(r.Metrics.Registry, `fairlead_tunnel_server_links{protocol="fairlead"}`) == 1
		})
		if r.badInput() != before {
			t.Errorf("a killed agent is counted (linger %d)", linger)
		}
	}
	r.unharmed(t)
}

// TestRogueHandshake checks that the server refuses and counts an agent whose hello is
// malformed.
func TestRogueHandshake(t *testing.T) {
	t.Parallel()
	r := newRogueRig(t)
	refused := func() float64 {
		return Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="handshake"}`)
	}
	for name, in := range map[string][]byte{
		"garbage": []byte("GET / HTTP/1.1\r\n\r\n"), "no agent ID": frame(fHello, 0, "\x06window\x00\x0565536"),
		"bad fields": frame(fHello, 0, "\xff"), "key twice": frame(fHello, 0, "\x01a\x00\x00\x01a\x00\x00"),
		"window of 0": frame(fHello, 0, "\x07agentID\x00\x01a\x06window\x00\x010"), "DATA first": frame(fData, 1, "x"),
		"oversized": {fHello, 0xff, 0xff, 0xff, 0, 0, 0, 0},
	} {
		before := refused()
		nc := r.connectRogue(t, link.ALPN)
		_, _ = nc.Write(in)
		_, _ = io.Copy(io.Discard, nc)
		if refused() <= before {
			t.Errorf("%s: not counted", name)
		}
		r.wantOneLine(t, nc.LocalAddr())
	}
	r.unharmed(t)
}

// TestRogueStream checks that an agent that violates the protocol on one stream loses
// that stream. The client sees the end of its connection, and the link continues where
// the protocol says so.
func TestRogueStream(t *testing.T) {
	t.Parallel()
	r := newRogueRig(t)
	big := strings.Repeat("x", 65_000)
	for name, c := range map[string]struct {
		send  func(id uint32) []byte
		lives bool // the link continues
	}{
		"data before the dial is answered":   {func(id uint32) []byte { return frame(fData, id, "early") }, true},
		"FIN before the dial is answered":    {func(id uint32) []byte { return frame(fFin, id, "") }, true},
		"CLOSE before the dial is answered":  {func(id uint32) []byte { return frame(fClose, id, "") }, true},
		"CREDIT before the dial is answered": {func(id uint32) []byte { return frame(fCredit, id, "\x00\x00\x10\x00") }, true},
		"data beyond the window": {func(id uint32) []byte {
			b := frame(fDialed, id, "")
			for range 40 {
				b = append(b, frame(fData, id, big)...)
			}
			return b
		}, true},
		"data behind the end": {func(id uint32) []byte {
			return append(append(frame(fDialed, id, ""), frame(fFin, id, "")...), frame(fData, id, "late")...)
		}, true},
		"FIN twice and more": {func(id uint32) []byte {
			return append(frame(fDialed, id, ""), bytes.Repeat(frame(fFin, id, ""), 4)...)
		}, true},
		"credit beyond all bounds": {func(id uint32) []byte {
			return append(append(frame(fDialed, id, ""), frame(fCredit, id, "\x7f\xff\xff\xff")...), frame(fCredit, id, "\x7f\xff\xff\xff")...)
		}, true},
		"DIALED twice":      {func(id uint32) []byte { return append(frame(fDialed, id, ""), frame(fDialed, id, "")...) }, false},
		"CREDIT of 3 bytes": {func(id uint32) []byte { return append(frame(fDialed, id, ""), frame(fCredit, id, "abc")...) }, false},
		"DIALFAIL, empty":   {func(id uint32) []byte { return frame(fDialFail, id, "") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := r.badInput()
			nc := r.rogueLink(t)
			ctx, cancel := context.WithTimeout(t.Context(), Patience)
			defer cancel()
			done := make(chan error, 1)
			go func() {
				conn, err := Connect(r.Connect)(ctx, rogueHost+":80")
				if err == nil {
					time.Sleep(100 * time.Millisecond) // does not read at once: windows fill up
					_, err = io.Copy(io.Discard, conn)
					_ = conn.Close()
				}
				done <- err
			}()
			id, _ := next(t, nc, fDial)
			_, _ = nc.Write(c.send(id))
			Eventually(t, Patience, "it is counted", func() bool { return r.badInput() > before })
			if err := <-done; ctx.Err() != nil {
				t.Errorf("the dialer does not see the end: %v", err)
			}
			if c.lives {
				_, _ = nc.Write(frame(fPing, 0, "12345678"))
				next(t, nc, fPong)
			}
			r.wantOneLine(t, nc.LocalAddr())
			_ = nc.Close()
			r.unharmed(t)
		})
	}
}
