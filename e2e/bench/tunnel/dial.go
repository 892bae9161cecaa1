// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest/kasdial"
)

// dialer opens a connection to the target through the measured tunnel.
type dialer func(ctx context.Context, address string) (net.Conn, error)

func dialDirect(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// route says how to reach the measured tunnel, as arguments for another process:
// a mode or socksRoute, and the socket or port.
type route struct{ kind, at string }

// Kinds of routes besides the modes.
const (
	directRoute = "direct"
	socksRoute  = "socks"
)

func (r route) dialer() dialer { return r.dialerUntil(context.Background()) }

// dialerUntil is dialer, but cuts the tunnels of clients that cannot close them when life
// ends.
func (r route) dialerUntil(life context.Context) dialer {
	switch r.kind {
	case directRoute:
		return dialDirect
	case socksRoute:
		return socksDialer(r.at)
	case "grpc":
		return grpcDialer(life, r.at)
	}
	return connectDialer(r.at)
}

// grpcDialer dials as kube-apiserver does with GRPC over UDS.
func grpcDialer(life context.Context, socket string) dialer {
	return func(ctx context.Context, address string) (net.Conn, error) {
		return kasdial.GRPCUntil(ctx, life, socket, address)
	}
}

// connectDialer dials as kube-apiserver does with HTTP CONNECT over UDS.
func connectDialer(socket string) dialer {
	return func(ctx context.Context, address string) (net.Conn, error) {
		c, err := kasdial.Unix(ctx, socket)
		if err != nil {
			return nil, err
		}
		if deadline, ok := ctx.Deadline(); ok {
			_ = c.SetDeadline(deadline)
			defer func() { _ = c.SetDeadline(time.Time{}) }()
		}
		return kasdial.Handshake(c, address)
	}
}
