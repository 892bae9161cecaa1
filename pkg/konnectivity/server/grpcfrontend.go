// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

// proxyPath is the gRPC method with which frontends dial.
const proxyPath = "/ProxyService/Proxy"

// serveGRPC serves one HTTP/2 connection of a frontend. kube-apiserver opens one
// for each dial, with one stream on it.
func (s *Server) serveGRPC(nc net.Conn) {
	s.opening.Add(1)
	g := &grpcFrontend{s: s, since: time.Now()}
	g.fresh.Store(true)
	defer g.opened()
	if s.goingDown() { // before the first frame, so that the frontend tries again
		_ = nc.Close()
		return
	}
	g.connect(nc)
	if !s.track(g) {
		g.goAway()
		g.conn.Close()
		return
	}
	defer s.untrack(g)
	g.ended(g.conn.Serve())
}

// grpcFrontend is one HTTP/2 connection of a frontend.
type grpcFrontend struct {
	s     *Server
	conn  *h2.Conn
	since time.Time
	fresh atomic.Bool // has had no stream yet; counted in Server.opening
	// several says that more than one tunneled connection is or was carried, as
	// kube-apiserver never has it: then its reader may wait for none of them. While
	// the first one is alone, it may; a second one can begin when that wait is over.
	several atomic.Bool
	// cut says that the connection ended while tunneled connections were open.
	cut atomic.Bool
}

// connect and ended are not part of serveGRPC, whose stack is an idle frontend's largest cost.
func (g *grpcFrontend) connect(nc net.Conn) {
	cfg := g.s.cfg.Frontend
	cfg.Budget = g.s.memory
	cfg.OnStream = g.open
	cfg.OnSent = g.s.m.wrote
	cfg.OnBreach = func(err *h2.ConnError) { g.bad(err) }
	_ = nc.SetReadDeadline(time.Now().Add(headerTimeout)) // until the first stream
	g.conn = h2.NewServer(nc, cfg)
}

// ended logs why a connection was cut off. A frontend whose tunneled connections are over ends its own in an orderly
// way, with GOAWAY or with a reset if it has not read all of the answers: that is no event. Breaches are logged by bad.
func (g *grpcFrontend) ended(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return
	}
	if g.cut.Load() || errors.Is(err, os.ErrDeadlineExceeded) {
		peer := netx.Peer(g.conn.Net())
		g.s.throttled.Add(logthrottle.Event{Level: 4, Peer: peer, Message: "The connection of a client was cut off", Who: []any{"client", peer}, Err: err})
	}
}

// bad counts and logs what the frontend sent.
func (g *grpcFrontend) bad(err error) { g.s.badFrontend(g.conn.Net(), err) }

func (g *grpcFrontend) unknown(first bool, t wire.Type) {
	peer := netx.Peer(g.conn.Net())
	g.s.unknown(first, peer, []any{"client", peer}, t)
}

// unknown counts and logs packets of a type that is skipped.
func (s *Server) unknown(first bool, peer string, who []any, t wire.Type) {
	s.m.unknownFrames.Inc()
	if first {
		s.throttled.Add(logthrottle.Event{Level: 1, Peer: peer, Message: "Skipping packets whose type is unknown or needs another message: the sender may be newer", Who: who, Why: []any{"type", t}})
	}
}

// badFrontend counts and logs what a frontend sent against the rules.
func (s *Server) badFrontend(nc net.Conn, err error) {
	peer := netx.Peer(nc)
	s.throttled.Add(logthrottle.Event{Level: 1, Peer: peer, Message: "A client breaks the protocol", Who: []any{"client", peer}, Err: err})
	s.m.badInput.With("client").Inc()
}

// opened notes that the first stream is there, or that none is waited for.
func (g *grpcFrontend) opened() {
	if g.fresh.CompareAndSwap(true, false) {
		g.s.opening.Add(-1)
	}
}

// goAway leaves a frontend that has just connected the time to open its stream: its
// dial has succeeded so far, and an upstream frontend does not begin it again.
func (g *grpcFrontend) goAway() {
	leave := func() {
		g.opened()
		g.conn.GoAway("server is stopping")
	}
	if left := g.s.cfg.FirstStream - time.Since(g.since); g.fresh.Load() && left > 0 {
		time.AfterFunc(left, leave)
		return
	}
	leave()
}

func (g *grpcFrontend) abort() { g.conn.Close() }

func (g *grpcFrontend) open(st *h2.Stream, fields []h2.Field) {
	var parent traceparent.Context
	for _, f := range fields {
		if f.Name == traceparent.Header {
			parent = traceparent.Parse(f.Value)
		}
		if f.Name == ":path" && f.Value != proxyPath {
			g.bad(fmt.Errorf("unknown method %q", f.Value))
			st.Waste()
			rejectStream(st, grpcUnimplemented, "unknown method "+f.Value)
			return
		}
	}
	g.s.m.grpcConns.With("Proxy").Inc()
	g.s.opening.Add(1)
	_ = g.conn.Net().SetReadDeadline(time.Time{})
	if !g.fresh.Load() {
		g.several.Store(true)
	}
	g.opened()
	st.SetHandler(&grpcStream{s: g.s, frontend: g, st: st, trace: parent, dials: map[int64]*grpcConn{}, conns: map[int64]*grpcConn{},
		to: g.s.m.segments["to_client"], from: g.s.m.segments["from_client"]})
	st.WriteHeaders([]h2.Field{{Name: ":status", Value: "200"}, {Name: "content-type", Value: "application/grpc"}})
}
