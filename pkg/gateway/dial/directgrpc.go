// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
)

// dialGRPC opens a connection with upstream's client, as kube-apiserver does: a gRPC
// connection for each.
func (d *direct) dialGRPC(ctx context.Context, to gateway.Destination) (gateway.Conn, error) {
	transport := insecure.NewCredentials()
	address := "passthrough:///" + d.o.Address
	if d.o.Socket == "" {
		config, err := d.tlsConfig()
		if err != nil {
			return nil, d.serverError(err)
		}
		transport = credentials.NewTLS(config)
	} else {
		address = "passthrough:///konnectivity-server"
	}
	// Reach the server first: gRPC retries until its deadline, and then does not say why.
	probe, err := d.connect(ctx)
	if err != nil {
		return nil, d.serverError(err)
	}
	_ = probe.Close()
	life, end := context.WithCancel(d.life)
	stop := context.AfterFunc(ctx, end) // the client waits for the server without a bound of its own
	defer stop()
	outgoing := life
	if c := traceparent.From(ctx); c.Valid() {
		outgoing = metadata.AppendToOutgoingContext(life, traceparent.Header, c.String())
	}
	tunnel, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, outgoing, address, grpc.WithTransportCredentials(transport),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			if d.o.Socket != "" {
				return (&net.Dialer{}).DialContext(ctx, "unix", d.o.Socket)
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", d.o.Address)
		}))
	if err != nil {
		end()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, d.serverError(err)
	}
	c, err := tunnel.DialContext(ctx, "tcp", target(to))
	if err != nil {
		end()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, gateway.TunnelError(to, 0, err.Error())
	}
	if !stop() {
		end()
		return nil, context.Cause(ctx)
	}
	return (&pumped{
		conn: c, to: to, end: end, down: d.life.Done(), goroutines: &d.goroutines,
		noHalfClose: fmt.Errorf("a konnectivity-server in mode %s cannot close one direction: use mode %s: %w", ModeGRPC, ModeHTTPConnect, errors.ErrUnsupported),
		// This mode does not tell a broken connection from one that ended.
		lost: func() error {
			if d.life.Err() != nil {
				return net.ErrClosed
			}
			return nil
		},
	}).start(), nil
}
