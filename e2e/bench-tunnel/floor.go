package main

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/sock"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/wire"
)

// startFloor runs a frontend that dials the target itself: no agent, no TLS, no
// multiplexing, no limits. Nothing with a second process behind it can be
// cheaper for the same dialler, so it shows what no tunnel can reach.
func startFloor(mode string) (*rig, error) {
	r, exe, err := newFloor(floorName, mode)
	if err != nil {
		return nil, err
	}
	if r.server, err = start("floor", r.dir+"/server.log", nil, exe, "floor", mode, "unix", r.socket); err != nil {
		return nil, err
	}
	return r, r.awaitSocket()
}

// startRelay puts a process in front of that one that passes bytes on, and so shows
// what two processes cost that neither encrypt nor multiplex anything.
func startRelay(mode string) (*rig, error) {
	r, exe, err := newFloor(relayName, mode)
	if err != nil {
		return nil, err
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort()))
	a, err := start("floor", r.dir+"/agent0.log", nil, exe, "floor", mode, "tcp", addr)
	if err != nil {
		return nil, err
	}
	r.agents = append(r.agents, a)
	if r.server, err = start("relay", r.dir+"/server.log", nil, exe, "relay", r.socket, addr); err != nil {
		r.stop()
		return nil, err
	}
	return r, r.awaitSocket()
}

func newFloor(name, mode string) (r *rig, exe string, err error) {
	if exe, err = os.Executable(); err != nil {
		return nil, "", err
	}
	dir, err := os.MkdirTemp("", "bt")
	if err != nil {
		return nil, "", err
	}
	r = &rig{pair: pair{name: name}, mode: mode, dir: dir, socket: filepath.Join(dir, "s")}
	r.via = route{mode, r.socket}
	return r, exe, nil
}

func (r *rig) awaitSocket() (err error) {
	for range 100 {
		if _, err = os.Stat(r.socket); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	r.stop()
	return err
}

// runFloor is the process "bench-tunnel floor <mode> <network> <address>".
func runFloor(mode, network, address string) error {
	if mode == "grpc" {
		return serveAll(network, address, floorGRPC)
	}
	return serveAll(network, address, floorConnect)
}

// runRelay is the process "bench-tunnel relay <socket> <address>".
func runRelay(socket, address string) error {
	return serveAll("unix", socket, func(c net.Conn) {
		defer c.Close()
		t, err := floorDial(address)
		if err != nil {
			return
		}
		defer func() { _ = t.Close() }()
		join(c, t)
	})
}

func serveAll(network, address string, serve func(net.Conn)) error {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), network, address)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go serve(c)
	}
}

// join lets the kernel move the bytes of both directions, unless they are encrypted.
func join(c net.Conn, t *net.TCPConn) {
	if s, ok := c.(*sealedConn); ok {
		joinSealed(s, t)
		return
	}
	go func() {
		_, _ = io.Copy(c, t)
		c.Close()
	}()
	_, _ = io.Copy(t, c)
}

// floorDial connects to an address with as little as package net allows.
func floorDial(address string) (*net.TCPConn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	return net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(to))
}

// floorConnect answers CONNECT and lets the kernel move the bytes. The dialler
// sends its request in one piece.
func floorConnect(c net.Conn) {
	defer c.Close()
	head := make([]byte, 512)
	n, err := c.Read(head)
	if err != nil {
		return
	}
	_, rest, _ := strings.Cut(string(head[:n]), " ")
	address, _, _ := strings.Cut(rest, " ")
	t, err := floorDial(address)
	if err != nil {
		return
	}
	defer func() { _ = t.Close() }()
	if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	join(c, t)
}

// floorStream is one tunnelled connection of the gRPC floor.
type floorStream struct {
	st  *h2.Stream
	dec wire.StreamDecoder
	t   net.Conn

	mu   sync.Mutex
	room *sync.Cond
	sent int // bytes queued and not yet sent
}

func floorGRPC(c net.Conn) {
	var f floorStream
	f.room = sync.NewCond(&f.mu)
	conn := h2.NewServer(c, h2.Config{OnStream: func(st *h2.Stream, _ []h2.Field) {
		f.st = st
		st.SetHandler(&f)
		st.WriteHeaders([]h2.Field{{Name: ":status", Value: "200"}, {Name: "content-type", Value: "application/grpc"}})
	}})
	_ = conn.Serve()
	f.close()
}

func (f *floorStream) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.t != nil {
		f.t.Close()
	}
	f.sent = -1 << 40
	f.room.Broadcast()
}

// Headers implements h2.StreamHandler.
func (f *floorStream) Headers([]h2.Field) {}

// End implements h2.StreamHandler.
func (f *floorStream) End() { f.close() }

// Closed implements h2.StreamHandler.
func (f *floorStream) Closed(error) { f.close() }

// Data implements h2.StreamHandler.
func (f *floorStream) Data(p []byte) error {
	err := f.dec.Feed(p, f)
	f.st.Consumed(len(p))
	return err
}

// HandleData implements wire.Handler. It may wait: the connection carries
// nothing else.
func (f *floorStream) HandleData(_ int64, piece []byte) error {
	_, err := f.t.Write(piece)
	return err
}

// HandlePacket implements wire.Handler.
func (f *floorStream) HandlePacket(p *wire.Packet) error {
	switch p.Type {
	case wire.DialReq:
		t, err := floorDial(p.Address)
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
func (f *floorStream) Sent(n int) {
	f.mu.Lock()
	f.sent -= n
	f.mu.Unlock()
	f.room.Signal()
}

func (f *floorStream) down() {
	in := sock.New(f.t)
	for {
		cs, err := in.ReadChunks(sock.MaxRead)
		if err != nil {
			return
		}
		f.mu.Lock()
		for f.sent > 4*buf.MaxPayload {
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
