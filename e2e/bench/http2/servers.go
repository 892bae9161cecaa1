// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest/baseline"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
)

// method is the gRPC method that kube-apiserver calls.
const method = "/ProxyService/Proxy"

var servers = []struct {
	name, title string
	serve       func(net.Listener) error
}{
	{"x-net", "golang.org/x/net/http2, the handler waits", serveXNet},
	{"grpc", "grpc-go, default", func(l net.Listener) error { return serveGRPC(l) }},
	{"grpc-lean", "grpc-go without read and write buffers, shared write buffer", func(l net.Listener) error {
		return serveGRPC(l, grpc.ReadBufferSize(0), grpc.WriteBufferSize(0))
	}},
	{"own", "the tunnel's own HTTP/2", serveOwn},
}

func serve(name, socket string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "unix", socket)
	if err != nil {
		return err
	}
	for _, s := range servers {
		if s.name == name {
			return s.serve(l)
		}
	}
	return fmt.Errorf("there is no server %q", name)
}

// each serves every connection on a goroutine of its own.
func each(l net.Listener, serve func(net.Conn)) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go serve(c)
	}
}

func serveXNet(l net.Listener) error {
	srv := &http2.Server{} //nolint:staticcheck // this implementation is what is measured
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	return each(l, func(c net.Conn) { srv.ServeConn(c, &http2.ServeConnOpts{Handler: handler}) }) //nolint:staticcheck // as above
}

func serveGRPC(l net.Listener, opts ...grpc.ServerOption) error {
	handler := func(_ any, s grpc.ServerStream) error { <-s.Context().Done(); return nil }
	srv := grpc.NewServer(append(opts, grpc.UnknownServiceHandler(handler))...)
	return srv.Serve(l)
}

func serveOwn(l net.Listener) error { return each(l, baseline.GRPC) }
