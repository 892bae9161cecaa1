package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
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
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bt")
	if err != nil {
		return nil, err
	}
	r := &rig{pair: pair{name: "no agent"}, mode: mode, dir: dir, socket: filepath.Join(dir, "s")}
	if r.server, err = start("floor", dir+"/server.log", exe, "floor", mode, r.socket); err != nil {
		return nil, err
	}
	r.dial = frontDialer(mode, r.socket)
	for range 100 {
		if _, err = os.Stat(r.socket); err == nil {
			return r, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	r.stop()
	return nil, err
}

// runFloor is the process "bench-tunnel floor <mode> <socket>".
func runFloor(mode, socket string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "unix", socket)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		if mode == "grpc" {
			go floorGRPC(c)
		} else {
			go floorConnect(c)
		}
	}
}

// floorConnect answers CONNECT and lets the kernel move the bytes.
func floorConnect(c net.Conn) {
	defer c.Close()
	br := bufio.NewReaderSize(c, 1024)
	req, err := http.ReadRequest(br)
	if err != nil {
		return
	}
	t, err := dialDirect(context.Background(), req.URL.Host)
	if err != nil {
		return
	}
	defer t.Close()
	if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(c, t)
		c.Close()
	}()
	_, _ = io.Copy(t, c)
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
		t, err := dialDirect(context.Background(), p.Address)
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
		c, err := in.ReadChunk(buf.MaxPayload)
		if err != nil {
			return
		}
		f.mu.Lock()
		for f.sent > 4*buf.MaxPayload {
			f.room.Wait()
		}
		f.sent += c.Len()
		f.mu.Unlock()
		if !f.st.SendData(1, c, f) {
			return
		}
	}
}
