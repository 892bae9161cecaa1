// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/upstream"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

// connectPath is the gRPC method with which agents connect.
const connectPath = "/AgentService/Connect"

// serveUpstream serves an upstream agent.
func (s *Server) serveUpstream(nc *tls.Conn, pc *plainConn) {
	c := &upstreamConn{s: s, nc: nc}
	if !s.enter() {
		s.refuse(nc, "limit", errTooManyAgents)
		_ = nc.Close()
		return
	}
	defer c.end()
	c.conn = h2.NewServer(nc, h2.Config{StreamWindow: 1 << 20, MaxOut: 256 << 10, MaxStreams: 16, MayOpen: c.mayOpen, OnStream: c.stream,
		OnBreach: func(err *h2.ConnError) { s.badAgent(&Backend{peer: nc.RemoteAddr().String()}, true, err) }})
	if !s.trackInstead(pc, c) {
		c.conn.Close()
		return
	}
	defer s.untrack(c)
	c.await()
	_ = c.conn.Serve()
}

// stream answers an agent's call of Connect. Authentication asks the API server, so it
// runs next to the connection's reader.
func (c *upstreamConn) stream(st *h2.Stream, fields []h2.Field) {
	s, nc := c.s, c.nc
	var agentIDs, idents, auth []string
	path := ""
	for _, f := range fields {
		switch f.Name {
		case ":path":
			path = f.Value
		case "agentid":
			if len(f.Value) > link.MaxAgentID {
				err := longID(f.Value)
				s.refuse(nc, "identifiers", err)
				rejectStream(st, grpcInvalidArgument, err.Error())
				return
			}
			agentIDs = append(agentIDs, f.Value)
		case "agentidentifiers":
			idents = append(idents, f.Value)
		case "authorization":
			auth = append(auth, f.Value)
		}
	}
	if code, reason, err := s.checkCall(path, agentIDs, idents, auth); err != nil {
		s.refuse(nc, reason, err)
		rejectStream(st, code, err.Error())
		return
	}
	b := s.newBackend(agentIDs[0], Identifiers{}, nc)
	b.h2 = st.Conn()
	admitted := make(chan bool, 1)
	ctx, gone := context.WithCancel(s.ctx)
	cfg := s.sessionConfig(b)
	cfg.OnClosed = func(err error) {
		gone()
		s.wg.Go(func() {
			if <-admitted {
				s.leave(b, "upstream", err)
				s.unseat(&b.ids)
				c.left(time.Since(b.since))
			}
			st.Reset(h2.CodeCancel)
		})
	}
	b.session = upstream.New(st, true, cfg)
	st.SetHandler(b.session)
	s.wg.Go(func() {
		defer gone()
		ok := s.admitUpstream(ctx, nc, st, b, idents, auth)
		if ok {
			c.came()
		}
		admitted <- ok
	})
}

// sessionConfig returns the configuration of an upstream agent's stream.
func (s *Server) sessionConfig(b *Backend) upstream.Config {
	to, from := s.m.segments["to_agent"], s.m.segments["from_agent"]
	return upstream.Config{
		ConnBuffer: s.cfg.ConnBuffer, MaxConns: s.cfg.MaxPerAgent, Pause: s.cfg.PauseSlow, OnOverflow: s.m.overflows.Inc,
		OnDrain: func() {
			if !b.draining.Swap(true) {
				s.vacate(b)
			}
		},
		OnBad: func(err error, first bool) { s.badAgent(b, first, fmt.Errorf("bad packet: %w", err)) },
		OnStray: func(t wire.Type, id int64, never bool) {
			s.m.strays.With("agent", t.String()).Inc()
			if never {
				s.badAgent(b, true, fmt.Errorf("%s for connection %d, which it never had", t, id))
			}
		},
		OnUnknown: func(t wire.Type, first bool) {
			s.unknown(first, b.peer, b.who(), t)
		},
		Observe: func(received bool, t wire.Type) {
			if received {
				s.m.observe(from, t)
			} else {
				s.m.observe(to, t)
			}
		},
	}
}

// gRPC status codes.
const (
	grpcOK                = "0"
	grpcInvalidArgument   = "3"
	grpcResourceExhausted = "8"
	grpcUnimplemented     = "12"
	grpcInternal          = "13"
	grpcUnauthenticated   = "16"
)

// checkCall finds what is wrong with an agent's call before anything is made for it.
func (s *Server) checkCall(path string, agentIDs, idents, auth []string) (code, reason string, err error) {
	switch {
	case path != connectPath:
		return grpcUnimplemented, "path", fmt.Errorf("unknown method %q", path)
	case len(agentIDs) != 1 || agentIDs[0] == "":
		return grpcInvalidArgument, "identifiers", errors.New("expected one agent ID in the context, got " + strconv.Itoa(len(agentIDs)))
	case len(idents) > 1:
		return grpcInvalidArgument, "identifiers", errors.New("expected at most one set of agent identifiers")
	case s.cfg.Tokens != nil && len(auth) == 0:
		s.m.tokenReview.With("refused").Inc()
		return grpcUnauthenticated, "token", errors.New("agent sent no token")
	case s.cfg.Tokens != nil && len(auth) > 1:
		s.m.tokenReview.With("refused").Inc()
		return grpcUnauthenticated, "token", fmt.Errorf("agent sent %d tokens", len(auth))
	}
	return "", "", nil
}

// admitUpstream answers an agent's call and tells whether the agent is connected.
func (s *Server) admitUpstream(ctx context.Context, nc *tls.Conn, st *h2.Stream, b *Backend, idents, auth []string) bool {
	s.coming.Add(1)
	defer s.coming.Add(-1)
	token, ids := "", ""
	if len(auth) == 1 {
		token = strings.TrimPrefix(auth[0], "Bearer ")
	}
	if len(idents) == 1 {
		ids = idents[0]
	}
	parsed, reason, err := s.admit(ctx, nc, token, ids)
	if err != nil {
		s.refuse(nc, reason, err)
		rejectStream(st, grpcUnauthenticated, err.Error())
		return false
	}
	b.ids, b.tenure.token = parsed, token
	st.WriteHeaders([]h2.Field{{Name: ":status", Value: "200"}, {Name: "content-type", Value: "application/grpc"},
		{Name: "serverid", Value: s.cfg.ServerID}, {Name: "servercount", Value: strconv.Itoa(s.cfg.ServerCount)}})
	s.join(b, "upstream")
	st.Flush()
	return true
}

// rejectStream ends a call with nothing but a status.
func rejectStream(st *h2.Stream, code, message string) {
	st.Finish([]h2.Field{{Name: ":status", Value: "200"}, {Name: "content-type", Value: "application/grpc"},
		{Name: "grpc-status", Value: code}, {Name: "grpc-message", Value: percentEncode(message)}})
}

// percentEncode encodes a gRPC status message.
func percentEncode(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c >= ' ' && c <= '~' && c != '%' {
			b.WriteByte(c)
		} else {
			b.WriteString(string([]byte{'%', hex[c>>4], hex[c&15]}))
		}
	}
	return b.String()
}
