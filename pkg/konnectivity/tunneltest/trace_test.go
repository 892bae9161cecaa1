// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"testing"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

const (
	traceID  = "4bf92f3577b34da6a3ce929d0e0e4736"
	parentID = "00f067aa0ba902b7"
	parent   = "00-" + traceID + "-" + parentID + "-01"
)

// grpcTraced dials with gRPC as a client that sends its context.
func grpcTraced(ctx context.Context, socket, address string) (net.Conn, error) {
	inject := func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, s grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
		return s(metadata.AppendToOutgoingContext(ctx, traceparent.Header, parent), d, cc, method, o...)
	}
	tunnel, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, context.Background(), "unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStreamInterceptor(inject))
	if err != nil {
		return nil, err
	}
	return tunnel.DialContext(ctx, "tcp", address)
}

// connectTraced does so with HTTP CONNECT.
func connectTraced(ctx context.Context, socket, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	if _, err = fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: x\r\nTraceparent: %s\r\n\r\n", address, parent); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil) //nolint:bodyclose // the body is the tunnel
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s", resp.Status)
	}
	return c, err
}

// TestTrace: a dial of a client that sends its trace context makes a chain of spans in the same trace, from the client's
// span over the server's to the agent's and its connection to the destination, in both modes. A dial that fails is
// marked so.
func TestTrace(t *testing.T) {
	t.Parallel()
	for mode, dial := range map[string]func(ctx context.Context, r *Rig, address string) (net.Conn, error){
		"grpc":         func(ctx context.Context, r *Rig, a string) (net.Conn, error) { return grpcTraced(ctx, r.GRPC, a) },
		"http-connect": func(ctx context.Context, r *Rig, a string) (net.Conn, error) { return connectTraced(ctx, r.Connect, a) },
	} {
		for what, address := range map[string]string{"connected": Target(t, Echo), "refused": "127.0.0.1:1"} {
			t.Run(mode+"/"+what, func(t *testing.T) {
				col := StartCollector(t)
				ofServer, endServer := col.Tracer(t, "server")
				ofAgent, endAgent := col.Tracer(t, "agent")
				r := NewRig(t, server.Config{Tracer: ofServer})
				r.StartAgent(agent.Config{AgentID: "traced", Tracer: ofAgent}, "")
				c, err := dial(t.Context(), r, address)
				if (err == nil) != (what == "connected") {
					t.Fatalf("dial: %v", err)
				}
				if c != nil {
					defer c.Close()
				}
				endServer() // spans end before the answer is sent
				endAgent()
				checkChain(t, col, what == "connected")
			})
		}
	}
}

// TestTraceOfState: the server continues the trace of a client that opens a connection next to its state, as the tunnel's
// API does.
func TestTraceOfState(t *testing.T) {
	t.Parallel()
	col := StartCollector(t)
	tracer, end := col.Tracer(t, "server")
	r := NewRig(t, server.Config{Tracer: tracer})
	r.StartAgent(agent.Config{AgentID: "one"}, "")
	want := traceparent.Parse(parent)
	c, err := connecting(t, r).Connect(traceparent.With(t.Context(), want), Target(t, Echo), &state.Agent{ID: "one"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	end()
	if s := col.Get("server: konnectivity-server dial"); string(s.TraceId) != string(want.TraceID[:]) || string(s.ParentSpanId) != string(want.SpanID[:]) {
		t.Errorf("trace %x, parent %x, want %s", s.TraceId, s.ParentSpanId, want)
	}
}

func checkChain(t *testing.T, col *Collector, connected bool) {
	t.Helper()
	want, _ := hex.DecodeString(parentID)
	for _, name := range []string{"server: konnectivity-server dial", "agent: konnectivity-agent dial", "agent: connect"} {
		s := col.Get(name)
		if hex.EncodeToString(s.TraceId) != traceID || string(s.ParentSpanId) != string(want) {
			t.Errorf("%s: trace %x, parent %x, want %s, %x", name, s.TraceId, s.ParentSpanId, traceID, want)
		}
		if s.StartTimeUnixNano == 0 || s.EndTimeUnixNano < s.StartTimeUnixNano {
			t.Errorf("%s lasts from %d to %d", name, s.StartTimeUnixNano, s.EndTimeUnixNano)
		}
		if failed := s.Status.GetCode() == tracev1.Status_STATUS_CODE_ERROR; failed == connected {
			t.Errorf("%s has status %v", name, s.Status)
		}
		want = s.SpanId
	}
}

// TestTraceOff: an agent gets the address alone if nothing is traced, and a client cannot make an agent take a part of an
// address for a context.
func TestTraceOff(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{})
	r.StartAgent(agent.Config{AgentID: "plain"}, "")
	target := Target(t, Echo)
	c, err := connectTraced(t.Context(), r.Connect, target)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if c, err := GRPC(r.GRPC)(t.Context(), target+"\x00"+parent); err == nil {
		_ = c.Close()
		t.Error("an address with a zero byte was dialed")
	}
}

// TestTraceOlderAgent: an agent that has not announced that it takes trace contexts gets the address alone, and one that
// has gets both.
func TestTraceOlderAgent(t *testing.T) {
	t.Parallel()
	for _, announced := range []bool{false, true} {
		r := NewRig(t, server.Config{})
		nc := dialAgentsPort(t, r, link.ALPN)
		if _, err := link.SendHello(nc, link.Hello{AgentID: "a", Window: 1 << 16, Traces: announced}); err != nil {
			t.Fatal(err)
		}
		Eventually(t, Patience, "the agent is connected", func() bool { return r.Server.Connected("a") })
		go func() { _, _ = connectTraced(t.Context(), r.Connect, "10.0.0.1:1") }()
		const typeDial = 4
		_, payload := next(t, nc, typeDial)
		want := "10.0.0.1:1"
		if announced {
			want += "\x00" + parent
		}
		if payload != want {
			t.Errorf("announced %v: DIAL has %q, want %q", announced, payload, want)
		}
	}
}
