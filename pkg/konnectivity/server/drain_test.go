package server_test

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/konntest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestShutdownSparesFreshClients: a client that is connected but has not opened its
// stream when the server is asked to stop can still dial, as the reference client,
// which does so in two steps, would fail otherwise; one that never does holds the
// server up for no longer than FirstStream.
func TestShutdownSparesFreshClients(t *testing.T) {
	t.Run("dials", func(t *testing.T) {
		r := konntest.NewRig(t, server.Config{FirstStream: konntest.Patience})
		r.StartAgent(agent.Config{}, "")
		cc := connected(t, r.GRPC)
		stopped := make(chan struct{})
		go func() { defer close(stopped); shutdown(t, r) }()
		konntest.Eventually(t, konntest.Patience, "no new clients", func() bool {
			c, err := konntest.Connect(r.Connect)(t.Context(), "127.0.0.1:1")
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
			DialRequest: &client.DialRequest{Protocol: "tcp", Address: konntest.Target(t, konntest.Echo), Random: 7}}}
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
		r := konntest.NewRig(t, server.Config{})
		connected(t, r.GRPC)
		start := time.Now()
		shutdown(t, r)
		if d := time.Since(start); d > konntest.Patience/2 {
			t.Errorf("a client without a stream held the server up for %v", d)
		}
	})
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
	konntest.Eventually(t, konntest.Patience, "connected", func() bool { return cc.GetState() == connectivity.Ready })
	return cc
}

func shutdown(t *testing.T, r *konntest.Rig) {
	ctx, cancel := context.WithTimeout(t.Context(), konntest.Patience)
	defer cancel()
	r.Shutdown(ctx)
}

func refusedSocket(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}
