// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// rapidReset writes the call of Connect and its reset again and again, and returns the
// number of calls that went into the socket before the server ended the connection.
func rapidReset(nc net.Conn, most int) (calls int) {
	var block, out bytes.Buffer
	enc := hpack.NewEncoder(&block)
	fr := http2.NewFramer(&out, nil)
	out.WriteString(http2.ClientPreface)
	_ = fr.WriteSettings()
	done := make(chan struct{})
	go func() { defer close(done); _, _ = io.Copy(io.Discard, nc) }()
	for id := uint32(1); calls < most; {
		for range 500 {
			block.Reset()
			for _, f := range [][2]string{{":method", "POST"}, {":path", "/AgentService/Connect"}, {":scheme", "http"}, {":authority", "a"}, {"agentid", "flood"}, {"authorization", "Bearer wrong"}} {
				_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
			}
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
			_ = fr.WriteRSTStream(id, http2.ErrCodeCancel)
			id += 2
		}
		calls += 500
		_ = nc.SetWriteDeadline(time.Now().Add(Patience))
		if _, err := nc.Write(out.Bytes()); err != nil {
			break
		}
		out.Reset()
	}
	_ = nc.SetReadDeadline(time.Now().Add(Patience))
	<-done
	return calls
}

// TestStrangerFlood: peers without a token that open and reset streams make the server
// begin a few on each connection, and lose it. The tunnel goes on meanwhile; how fast is
// printed, next to the same dials without the flood.
func TestStrangerFlood(t *testing.T) {
	const attackers, most = 8, 100_000
	r := NewRig(t, server.Config{Tokens: tokens{}, Logger: (&logs{}).logger()})
	r.StartAgent(agent.Config{Token: func() (string, error) { return "good", nil }}, "")
	target := Target(t, Echo)
	dials := func() time.Duration {
		const n = 20
		start := time.Now()
		for range n {
			c := MustDial(t, GRPC(r.GRPC), target)
			_ = c.Close()
		}
		return time.Since(start) / n
	}
	idle := dials()
	begun := func() float64 {
		all := 0.0
		for _, reason := range []string{"token", "path", "identifiers", "limit"} {
			all += Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="`+reason+`"}`)
		}
		return all
	}
	conns := make([]net.Conn, attackers)
	for i := range conns {
		conns[i] = strangerTo(t, r)
	}
	var wg sync.WaitGroup
	calls := make([]int, attackers)
	for i, nc := range conns {
		wg.Go(func() { calls[i] = rapidReset(nc, most) })
	}
	during := dials()
	wg.Wait()
	for i, n := range calls {
		if n >= most {
			t.Errorf("connection %d: all %d calls were taken", i, n)
		}
	}
	Eventually(t, Patience, "each is counted", func() bool {
		return Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="flood"}`) == attackers
	})
	if n := begun(); n > 4*attackers {
		t.Errorf("%v calls were answered, want at most 4 for each connection", n)
	}
	t.Logf("a dial takes %v when idle and %v with %d floods, which wrote %v calls", idle, during, attackers, calls)
}
