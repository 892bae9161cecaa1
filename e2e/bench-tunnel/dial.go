package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
)

// dialer makes a connection to the target through what is measured.
type dialer func(ctx context.Context, address string) (net.Conn, error)

func dialDirect(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

func dialUnix(ctx context.Context, socket string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", socket)
}

// route says how to reach what is measured, in words that another process can be
// given: a mode or socksRoute, and the socket or port.
type route struct{ kind, at string }

// Kinds of routes besides the modes.
const (
	directRoute = "direct"
	socksRoute  = "socks"
)

func (r route) dialer() dialer {
	switch r.kind {
	case directRoute:
		return dialDirect
	case socksRoute:
		return socksDialer(r.at)
	case "grpc":
		return grpcDialer(r.at)
	}
	return connectDialer(r.at)
}

// grpcDialer dials as kube-apiserver does with GRPC over UDS.
func grpcDialer(socket string) dialer {
	return func(ctx context.Context, address string) (net.Conn, error) {
		unix := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dialUnix(ctx, socket) })
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		t, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, context.Background(), socket, unix,
			grpc.WithBlock(), grpc.WithReturnConnectionError(), grpc.WithTimeout(30*time.Second), //nolint:staticcheck // as kube-apiserver
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		return t.DialContext(ctx, "tcp", address)
	}
}

// connectDialer dials as kube-apiserver does with HTTP CONNECT over UDS.
func connectDialer(socket string) dialer {
	return func(ctx context.Context, address string) (net.Conn, error) {
		c, err := dialUnix(ctx, socket)
		if err != nil {
			return nil, err
		}
		if deadline, ok := ctx.Deadline(); ok {
			_ = c.SetDeadline(deadline)
			defer func() { _ = c.SetDeadline(time.Time{}) }()
		}
		if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", address); err != nil {
			c.Close()
			return nil, err
		}
		br := bufio.NewReader(c)
		resp, err := http.ReadResponse(br, nil) //nolint:bodyclose // the tunnel follows the head
		if err != nil {
			c.Close()
			return nil, err
		}
		if resp.StatusCode != http.StatusOK || br.Buffered() > 0 {
			c.Close()
			return nil, fmt.Errorf("proxy answered %s, %d bytes behind it", resp.Status, br.Buffered())
		}
		return c, nil
	}
}
