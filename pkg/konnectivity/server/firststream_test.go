// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
)

// patience is a connection that records its read deadline.
type patience struct {
	net.Conn
	until atomic.Pointer[time.Time]
}

func (p *patience) SetReadDeadline(t time.Time) error {
	p.until.Store(&t)
	return p.Conn.SetReadDeadline(t)
}

// A client of gRPC that opens no stream is not waited for without end; one that has had
// one is, as upstream's client may keep its connection; also if that came when the
// server, about to stop, waited for it no more.
func TestClientWithoutStream(t *testing.T) {
	for name, late := range map[string]bool{"in time": false, "late": true} {
		t.Run(name, func(t *testing.T) { firstStream(t, late) })
	}
}

func firstStream(t *testing.T, late bool) {
	s := New(Config{}, NewMetrics())
	defer func() {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.Shutdown(ctx)
	}()
	far, near := net.Pipe()
	nc := &patience{Conn: near}
	served := make(chan struct{})
	go func() { defer close(served); s.serveGRPC(nc) }()
	sinktest.Eventually(t, "there is a deadline", func() bool {
		until := nc.until.Load()
		return until != nil && time.Until(*until) > 0 && time.Until(*until) <= headerTimeout
	})
	sinktest.Eventually(t, "the client is known", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for g := range s.conns {
			if late {
				g.(*grpcFrontend).opened()
			}
		}
		return len(s.conns) == 1
	})
	c := h2.NewClient(far, h2.Config{})
	ran := make(chan struct{})
	go func() { defer close(ran); _ = c.Serve() }()
	c.Open([]h2.Field{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: proxyPath},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}}, nil)
	sinktest.Eventually(t, "there is none any more", func() bool { return nc.until.Load().IsZero() })
	c.Close()
	far.Close()
	<-ran
	<-served
}
