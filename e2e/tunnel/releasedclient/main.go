// SPDX-License-Identifier: Apache-2.0

// Command releasedclient dials through a konnectivity server with the client of
// kube-apiserver v1.36.3, in the versions of konnectivity-client and grpc-go that its
// release pins. The module around it is later with gRPC, whose client decides when it
// sends window updates and acknowledgements.
//
// It listens on one Unix socket and dials through another:
//
//	releasedclient <socket to listen on> <socket of the server>
//
// A client that connects sends the address in a line. It gets a line with "ok" or the
// error of the dial. Then bytes are passed on in both directions until one of them
// ends.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: releasedclient <socket to listen on> <socket of the server>")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(path, server string) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go pass(c, server)
	}
}

// pass serves one connection.
func pass(c net.Conn, server string) {
	defer c.Close()
	in := bufio.NewReader(c)
	address, err := in.ReadString('\n')
	if err != nil {
		return
	}
	tunnel, err := dial(server, strings.TrimSuffix(address, "\n"))
	if err != nil {
		fmt.Fprintf(c, "%v\n", err)
		return
	}
	defer tunnel.Close()
	if _, err := fmt.Fprintln(c, "ok"); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(tunnel, in)
		_ = tunnel.Close()
	}()
	_, _ = io.Copy(c, tunnel)
}

// timeout is kube-apiserver's for a dial.
const timeout = 30 * time.Second

// dial does what kube-apiserver does with GRPC over UDS.
func dial(socket, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	tunnel, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, context.Background(), socket,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}),
		grpc.WithBlock(), grpc.WithReturnConnectionError(), grpc.WithTimeout(timeout),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return tunnel.DialContext(ctx, "tcp", address)
}
