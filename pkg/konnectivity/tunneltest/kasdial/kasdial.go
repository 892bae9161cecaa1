// SPDX-License-Identifier: Apache-2.0

// Package kasdial dials through a tunnel as kube-apiserver does, for tests and
// measurements.
package kasdial

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

// timeout is kube-apiserver's timeout for a dial.
const timeout = 30 * time.Second

// Unix connects to a socket.
func Unix(ctx context.Context, socket string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", socket)
}

// GRPC dials as kube-apiserver does with gRPC over a Unix domain socket.
func GRPC(ctx context.Context, socket, address string) (net.Conn, error) {
	return GRPCUntil(ctx, context.Background(), socket, address)
}

// GRPCUntil is GRPC with a tunnel that is cut when life is done. Upstream's client takes
// ten seconds to close a connection that has unread bytes.
func GRPCUntil(ctx, life context.Context, socket, address string) (net.Conn, error) {
	return tunnel(ctx, life, socket, address,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return Unix(ctx, socket) }),
		grpc.WithBlock(), grpc.WithReturnConnectionError(), grpc.WithTimeout(timeout), //nolint:staticcheck // as kube-apiserver
		grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// GRPCOver dials with gRPC over TCP, which upstream's client supports.
func GRPCOver(ctx context.Context, proxy, address string, transport grpc.DialOption) (net.Conn, error) {
	return tunnel(ctx, context.Background(), proxy, address, grpc.WithBlock(), grpc.FailOnNonTempDialError(true), transport) //nolint:staticcheck // as kube-apiserver
}

func tunnel(ctx, life context.Context, proxy, address string, opts ...grpc.DialOption) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	t, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, life, proxy, opts...)
	if err != nil {
		return nil, err
	}
	return t.DialContext(ctx, "tcp", address)
}

// Handshake performs the HTTP CONNECT handshake on a connection. It closes the connection
// if the handshake fails. Like kube-apiserver, it fails if bytes arrive together with the
// answer.
func Handshake(c net.Conn, address string) (net.Conn, error) {
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", address); err != nil {
		_ = c.Close()
		return nil, err
	}
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil) //nolint:bodyclose // the tunnel follows the head
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || br.Buffered() > 0 {
		_ = c.Close()
		return nil, fmt.Errorf("proxy answered %s, %d bytes behind it", resp.Status, br.Buffered())
	}
	return c, nil
}
