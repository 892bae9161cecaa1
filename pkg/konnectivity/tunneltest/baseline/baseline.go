// SPDX-License-Identifier: Apache-2.0

// Package baseline serves kube-apiserver's two proxy protocols without a tunnel: one process
// that dials the target itself, with no agent, no multiplexing and no limits. Benchmarks
// compare the tunnel with it, because no tunnel can cost less.
//
// Start with Connect and GRPC; NewSealed adds TLS between two such processes.
package baseline

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

// Join lets the kernel move the bytes of both directions, unless they are encrypted.
func Join(c net.Conn, t *net.TCPConn) {
	if s, ok := c.(*Sealed); ok {
		JoinSealed(s, t)
		return
	}
	go func() {
		_, _ = io.Copy(c, t)
		c.Close()
	}()
	_, _ = io.Copy(t, c)
}

// Dial connects to an address, which is no name, with as little as package net allows.
func Dial(address string) (*net.TCPConn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	return net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(to))
}

// Connect serves one connection: it answers CONNECT and lets the kernel move the bytes. The
// client sends its request in one piece.
func Connect(c net.Conn) {
	defer c.Close()
	head := make([]byte, 512)
	n, err := c.Read(head)
	if err != nil {
		return
	}
	_, rest, _ := strings.Cut(string(head[:n]), " ")
	address, _, _ := strings.Cut(rest, " ")
	t, err := Dial(address)
	if err != nil {
		return
	}
	defer func() { _ = t.Close() }()
	if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	Join(c, t)
}

// grpcStream is one tunneled connection of the gRPC floor.
type grpcStream struct {
	st  *h2.Stream
	dec wire.StreamDecoder
	t   net.Conn

	mu   sync.Mutex
	room *sync.Cond
	sent int // bytes queued and not yet sent
}

// GRPC serves one connection of kube-apiserver's gRPC protocol.
func GRPC(c net.Conn) {
	var f grpcStream
	f.room = sync.NewCond(&f.mu)
	conn := h2.NewServer(c, h2.Config{OnStream: func(st *h2.Stream, _ []h2.Field) {
		f.st = st
		st.SetHandler(&f)
		st.WriteHeaders([]h2.Field{{Name: ":status", Value: "200"}, {Name: "content-type", Value: "application/grpc"}})
	}})
	_ = conn.Serve()
	f.close()
}

func (f *grpcStream) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.t != nil {
		f.t.Close()
	}
	f.sent = -1 << 40
	f.room.Broadcast()
}

// Headers implements h2.StreamHandler.
func (f *grpcStream) Headers([]h2.Field) {}

// End implements h2.StreamHandler.
func (f *grpcStream) End() { f.close() }

// Closed implements h2.StreamHandler.
func (f *grpcStream) Closed(error) { f.close() }

// Data implements h2.StreamHandler.
func (f *grpcStream) Data(p []byte) error {
	err := f.dec.Feed(p, f)
	f.st.Consumed(len(p))
	return err
}

// HandleData implements wire.Handler. It may wait: the connection carries
// nothing else.
func (f *grpcStream) HandleData(_ int64, piece []byte) error {
	_, err := f.t.Write(piece)
	return err
}

// HandlePacket implements wire.Handler.
func (f *grpcStream) HandlePacket(p *wire.Packet) error {
	switch p.Type {
	case wire.DialReq:
		t, err := Dial(p.Address)
		if err != nil {
			return err
		}
		f.t = t
		f.st.SendControl(wire.AppendMessage(nil, &wire.Packet{Payload: wire.DialRsp, Random: p.Random, ConnID: 1}))
		go f.down()
	case wire.CloseReq:
		f.st.SendControl(wire.AppendMessage(nil, &wire.Packet{Payload: wire.CloseRsp, ConnID: p.ConnID}))
		f.close()
	}
	return nil
}

// Sent implements h2.Sender.
func (f *grpcStream) Sent(n int) {
	f.mu.Lock()
	f.sent -= n
	f.mu.Unlock()
	f.room.Signal()
}

func (f *grpcStream) down() {
	in := netx.New(f.t)
	for {
		cs, err := in.ReadChunks(netx.MaxRead)
		if err != nil {
			return
		}
		f.mu.Lock()
		for f.sent > 4*buffer.MaxPayload {
			f.room.Wait()
		}
		for _, c := range cs {
			f.sent += c.Len()
		}
		f.mu.Unlock()
		if !f.st.SendData(1, f, cs...) {
			return
		}
	}
}
