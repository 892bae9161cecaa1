// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestShutdownSparesFreshClients checks that a client that is connected but has not
// opened its stream when the server begins to stop can still dial. Upstream's client
// does this in two steps, and would fail otherwise. A client that never opens a stream
// delays the server by no more than FirstStream.
func TestShutdownSparesFreshClients(t *testing.T) {
	t.Run("dials", func(t *testing.T) {
		r := tunneltest.NewRig(t, server.Config{FirstStream: tunneltest.Patience})
		r.StartAgent(agent.Config{}, "")
		cc := connected(t, r.GRPC)
		stopped := make(chan struct{})
		go func() { defer close(stopped); shutdown(t, r) }()
		tunneltest.Eventually(t, tunneltest.Patience, "no new clients", func() bool {
			c, err := tunneltest.Connect(r.Connect)(t.Context(), "127.0.0.1:1")
			if err == nil {
				_ = c.Close()
			}
			return err != nil && refusedSocket(err)
		})
		st, err := client.NewProxyServiceClient(cc).Proxy(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		request := &client.Packet{Type: client.PacketType_DIAL_REQ, Payload: &client.Packet_DialRequest{
			DialRequest: &client.DialRequest{Protocol: "tcp", Address: tunneltest.Target(t, tunneltest.Echo), Random: 7}}}
		if err := st.Send(request); err != nil {
			t.Fatal(err)
		}
		answer, err := st.Recv()
		if err != nil || answer.GetDialResponse().GetError() != "" || answer.GetDialResponse().GetConnectID() == 0 {
			t.Errorf("dial: %v, %v", answer, err)
		}
		_ = cc.Close()
		<-stopped
	})
	t.Run("says nothing", func(t *testing.T) {
		r := tunneltest.NewRig(t, server.Config{})
		connected(t, r.GRPC)
		start := time.Now()
		shutdown(t, r)
		if d := time.Since(start); d > tunneltest.Patience/2 {
			t.Errorf("a client without a stream held the server up for %v", d)
		}
	})
}

// TestShutdownRefusesFurtherDials checks that, once the server is stopping, a client
// that has already dialed on a stream cannot dial on it again and gets the reason.
// Its existing connection continues.
func TestShutdownRefusesFurtherDials(t *testing.T) {
	r := tunneltest.NewRig(t, server.Config{})
	r.StartAgent(agent.Config{}, "")
	st, err := client.NewProxyServiceClient(connected(t, r.GRPC)).Proxy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	addr := tunneltest.Target(t, tunneltest.Echo)
	dial := func(random int64) *client.DialResponse {
		t.Helper()
		request := &client.Packet{Type: client.PacketType_DIAL_REQ, Payload: &client.Packet_DialRequest{
			DialRequest: &client.DialRequest{Protocol: "tcp", Address: addr, Random: random}}}
		if err := st.Send(request); err != nil {
			t.Fatal(err)
		}
		answer, err := st.Recv()
		if err != nil || answer.GetDialResponse().GetRandom() != random {
			t.Fatalf("%v, %v", answer, err)
		}
		return answer.GetDialResponse()
	}
	first := dial(1)
	if first.GetError() != "" {
		t.Fatal(first.GetError())
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); shutdown(t, r) }()
	tunneltest.Eventually(t, tunneltest.Patience, "the server takes no new clients", func() bool {
		_, err := tunneltest.Connect(r.Connect)(t.Context(), "127.0.0.1:1")
		return err != nil && refusedSocket(err)
	})
	if e := dial(2).GetError(); !strings.Contains(e, "server is stopping") {
		t.Errorf("a further dial: %q", e)
	}
	if n := tunneltest.Metric(r.Metrics.Registry, `fairlead_tunnel_server_dial_errors_total{kind="no_agent"}`); n != 1 {
		t.Errorf("metric counts %v, want 1", n)
	}
	data := &client.Packet{Type: client.PacketType_DATA, Payload: &client.Packet_Data{
		Data: &client.Data{ConnectID: first.GetConnectID(), Data: []byte("x")}}}
	if err := st.Send(data); err != nil {
		t.Fatal(err)
	}
	if p, err := st.Recv(); err != nil || string(p.GetData().GetData()) != "x" {
		t.Errorf("the first connection: %v, %v", p, err)
	}
	_ = st.CloseSend()
	<-stopped
}

// connected returns a connection on which a stream may be opened.
func connected(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	cc.Connect()
	tunneltest.Eventually(t, tunneltest.Patience, "connected", func() bool { return cc.GetState() == connectivity.Ready })
	return cc
}

func shutdown(t *testing.T, r *tunneltest.Rig) {
	ctx, cancel := context.WithTimeout(t.Context(), tunneltest.Patience)
	defer cancel()
	r.Shutdown(ctx)
}

func refusedSocket(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// TestShutdownRefusesConnections checks that a server that stops refuses the connections of listeners that it does not own, such as that
// for state, so that their clients go to another server.
func TestShutdownRefusesConnections(t *testing.T) {
	r := tunneltest.NewRig(t, server.Config{})
	r.StartAgent(agent.Config{}, "")
	held := tunneltest.MustDial(t, tunneltest.GRPC(r.GRPC), tunneltest.Target(t, tunneltest.Echo))
	stopped := make(chan struct{})
	go func() { defer close(stopped); shutdown(t, r) }()
	tunneltest.Eventually(t, tunneltest.Patience, "the server takes no new clients", func() bool {
		_, err := tunneltest.Connect(r.Connect)(t.Context(), "127.0.0.1:1")
		return err != nil && refusedSocket(err)
	})
	near, far := net.Pipe()
	defer near.Close()
	go r.Server.Connect(far, nil, tunneltest.Target(t, tunneltest.Echo), nil, "")
	_ = near.SetDeadline(time.Now().Add(tunneltest.Patience))
	answer, err := io.ReadAll(near)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 500 ") || !strings.Contains(string(answer), "server is stopping") {
		t.Errorf("%q, %v, want 500 and that the server is stopping", answer, err)
	}
	_ = held.Close()
	<-stopped
}
