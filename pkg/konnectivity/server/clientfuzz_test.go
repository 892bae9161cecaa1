// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

// FuzzClientStream gives a server what a gRPC client might send on a stream: whatever that
// was, when the client is gone no dial, connection, stream or buffer of it is left.
func FuzzClientStream(f *testing.F) {
	dial := func(random int64, address string) wire.Packet {
		return wire.Packet{Payload: wire.DialReq, Protocol: "tcp", Address: address, Random: random}
	}
	const accepted, refused, pending = "aa:1", "a:1", "aaa:1" // see takingAgent
	data := wire.Packet{Payload: wire.Data, ConnID: 1, Data: []byte("hello")}
	end := wire.Packet{Payload: wire.CloseReq, ConnID: 1}
	cancel := wire.Packet{Payload: wire.DialCls, Random: 1}
	for _, packets := range [][]wire.Packet{
		{dial(1, accepted), data, end},
		{dial(1, accepted), data, data, end, end, data},
		{dial(1, refused), data},
		{dial(1, pending), cancel, dial(1, accepted), data},
		{dial(1, pending), dial(1, pending), data},
		{dial(1, accepted), dial(2, accepted), dial(3, pending), data, end},
		{data, end, cancel, {Payload: wire.Drain}, {Payload: wire.CloseRsp, ConnID: 1}, {Payload: wire.DialRsp, Random: 1}},
	} {
		var b []byte
		for i := range packets {
			b = wire.AppendMessage(b, &packets[i])
		}
		f.Add(b, 1000, true)
		f.Add(append(b, 0, 0, 0, 0, 9, 0xff), 7, false)
	}
	f.Fuzz(func(t *testing.T, in []byte, size int, orderly bool) {
		synctest.Test(t, func(t *testing.T) {
			before := buffer.InUse()
			s := New(Config{}, NewMetrics())
			leave := s.takingAgent()
			sendPackets(s, in, 1+max(0, size)%(16<<10), orderly)
			time.Sleep(s.cfg.DialTimeout + time.Second)
			synctest.Wait()
			if n, open, pending := s.Established(), s.opening.Load(), s.m.pendingDials.Get(); n+open+pending != 0 || s.streams() != 0 {
				t.Errorf("%d connections, %d clients, %d dials and %d streams are left", n, open, pending, s.streams())
			}
			leave()
			ctx, stop := context.WithCancel(t.Context())
			stop()
			s.Shutdown(ctx)
			synctest.Wait()
			if left := buffer.InUse() - before; left > 0 {
				t.Errorf("%d bytes are left", left)
			}
		})
	})
}

// sendPackets is a client that sends what it is given in pieces and goes away.
func sendPackets(s *Server, in []byte, size int, orderly bool) {
	near, far := ends()
	s.wg.Go(func() { s.serveGRPC(far) })
	conn := h2.NewClient(near, h2.Config{})
	served := make(chan struct{})
	go func() { defer close(served); _ = conn.Serve() }()
	st := conn.Open([]h2.Field{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/ProxyService/Proxy"},
		{Name: ":authority", Value: "x"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}, discard{})
	for piece := range slices.Chunk(in, size) {
		st.SendControl(bytes.Clone(piece))
		synctest.Wait()
	}
	if orderly {
		st.Finish(nil)
		synctest.Wait()
	}
	conn.Close()
	<-served
}

// discard reads all that comes.
type discard struct{}

func (discard) Headers([]h2.Field) {}
func (discard) Data([]byte) error  { return nil }
func (discard) End()               {}
func (discard) Closed(error)       {}

// takingAgent connects an agent that accepts dials, refuses them or leaves them without an
// answer by the length of the address, and returns what ends it.
func (s *Server) takingAgent() (leave func()) {
	near, far := ends()
	l := link.New(near, 256<<10, link.Config{OnDial: func(st *link.Stream, address string) {
		st.SetReceiver(taker{st})
		switch len(address) % 3 {
		case 0:
			st.Refuse(tunnel.Errorf(tunnel.CodeRefused, "by the test"))
		case 1:
			go func() {
				st.Accept()
				st.Send(buffer.From([]byte("welcome")), true)
			}()
		}
	}})
	go func() { _ = l.Run() }()
	s.wg.Go(func() {
		s.runLink(far, &plainConn{far}, &link.Hello{AgentID: "taking", Window: 256 << 10}, Identifiers{}, func() {})
		_ = far.Close()
	})
	synctest.Wait()
	return l.Close
}

// taker takes all that comes, and ends when its peer does.
type taker struct{ st *link.Stream }

func (taker) Dialed(tunnel.Stream, error) {}
func (r taker) Data(cs ...*buffer.Chunk)  { r.st.Consumed(buffer.Release(cs)) }
func (taker) Writable()                   {}
func (r taker) End()                      { r.st.Close() }
func (taker) Aborted(error)               {}
