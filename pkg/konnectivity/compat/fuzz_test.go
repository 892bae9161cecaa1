package compat

import (
	"bytes"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/ledger"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel/tunneltest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/wire"
)

// tape is a connection on which the peer has said all it will ever say.
type tape struct{ in *bytes.Reader }

func (t *tape) Read(p []byte) (int, error)     { return t.in.Read(p) }
func (*tape) Write(p []byte) (int, error)      { return len(p), nil }
func (*tape) Close() error                     { return nil }
func (*tape) LocalAddr() net.Addr              { return nil }
func (*tape) RemoteAddr() net.Addr             { return nil }
func (*tape) SetDeadline(time.Time) error      { return nil }
func (*tape) SetReadDeadline(time.Time) error  { return nil }
func (*tape) SetWriteDeadline(time.Time) error { return nil }

// record is a connection with one stream, on which the messages come in DATA frames of
// up to size bytes.
func record(messages []byte, size int) *tape {
	var b, head bytes.Buffer
	b.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&b, nil)
	_ = f.WriteSettings()
	e := hpack.NewEncoder(&head)
	_ = e.WriteField(hpack.HeaderField{Name: ":method", Value: "POST"})
	_ = e.WriteField(hpack.HeaderField{Name: ":path", Value: "/a/b"})
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true})
	for len(messages) > 0 {
		n := min(len(messages), size)
		_ = f.WriteData(1, false, messages[:n])
		messages = messages[n:]
	}
	return &tape{bytes.NewReader(b.Bytes())}
}

// messages puts packets together as they come on a stream.
func messages(packets ...wire.Packet) (b []byte) {
	for i := range packets {
		b = wire.AppendMessage(b, &packets[i])
	}
	return b
}

// play has a session read a record to its end: whatever that was, everybody has been
// told, and nothing is held, neither on the account nor in buffers.
func play(t *testing.T, in *tape, server bool, cfg Config, begin func(*Session), over func()) {
	before := buf.InUse()
	book := ledger.New(ledger.Config{})
	var s *Session
	var account *ledger.Account
	conn := h2.NewServer(in, h2.Config{OnStream: func(st *h2.Stream, _ []h2.Field) {
		s = New(st, server, cfg)
		account = book.Open("peer", s)
		st.SetHandler(s)
		st.WriteHeaders([]h2.Field{{Name: ":status", Value: "200"}})
		begin(s)
	}})
	_ = conn.Serve()
	if s == nil {
		t.Fatal("the stream was not opened")
	}
	over()
	tunneltest.Eventually(t, "nothing is left", func() bool {
		return s.Len() == 0 && account.Held() == 0 && buf.InUse() <= before
	})
}

// FuzzServer gives a server that is dialling what an agent might send.
func FuzzServer(f *testing.F) {
	accept := wire.Packet{Type: wire.DialRsp, Payload: wire.DialRsp, ConnID: 1, Random: 1}
	refuse := wire.Packet{Type: wire.DialRsp, Payload: wire.DialRsp, Random: 2, Error: "connection refused"}
	data := wire.Packet{Type: wire.Data, Payload: wire.Data, ConnID: 1, Data: []byte("hello")}
	end := wire.Packet{Type: wire.CloseRsp, Payload: wire.CloseRsp, ConnID: 1}
	f.Add(messages(accept, data, end, refuse), 7)
	f.Add(messages(accept, data, data), 16<<10)
	f.Add(messages(data, end, wire.Packet{Type: wire.Drain, Payload: wire.Drain}, wire.Packet{Type: wire.DialCls, Payload: wire.DialCls, Random: 1}), 100)
	f.Add(append(messages(accept, data), 0, 0, 0, 0, 9, 0xff), 100)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		var sinks []*tunneltest.Sink
		play(t, record(in, max(1, size%(16<<10))), true, Config{ConnLimit: 1 << 10}, func(s *Session) {
			for random := range int64(2) {
				e := tunneltest.NewSink(nil, len(in)%2 == 0)
				if _, err := s.Dial("a:1", e); err != nil {
					t.Fatal(err)
				}
				renumber(s, random+1)
				sinks = append(sinks, e)
			}
		}, func() {
			for i, e := range sinks {
				select {
				case <-e.Answered:
				default:
					if _, _, _, aborted := e.State(); aborted == nil {
						t.Errorf("nobody told dial %d that it is over", i)
					}
				}
			}
		})
	})
}

// renumber gives the dial that was made last a number that a fuzzer can guess.
func renumber(s *Session, random int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for old, c := range s.dials {
		if old > 2 {
			delete(s.dials, old)
			c.random = random
			s.dials[random] = c
		}
	}
}

// FuzzAgent gives an agent what a server might send.
func FuzzAgent(f *testing.F) {
	dial := func(random int64, address string) wire.Packet {
		return wire.Packet{Type: wire.DialReq, Payload: wire.DialReq, Protocol: "tcp", Address: address, Random: random}
	}
	data := wire.Packet{Type: wire.Data, Payload: wire.Data, ConnID: 1, Data: []byte("hello")}
	f.Add(messages(dial(1, "a:1"), data, wire.Packet{Type: wire.CloseReq, Payload: wire.CloseReq, ConnID: 1}), 7)
	f.Add(messages(dial(1, "a:1"), dial(1, "a:1"), dial(2, "b:22"), data), 16<<10)
	f.Add(messages(dial(7, "pending"), wire.Packet{Type: wire.DialCls, Payload: wire.DialCls, Random: 7}, data), 100)
	f.Add(append(messages(dial(1, "a:1"), data), 0, 0, 0, 0, 9, 0xff), 100)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		var sinks []*tunneltest.Sink
		cfg := Config{ConnLimit: 1 << 10, OnDial: func(c *Conn, address string) {
			e := tunneltest.NewSink(c, len(in)%2 == 0)
			c.SetReceiver(e)
			switch len(address) % 3 {
			case 0:
				c.Accept()
			case 1:
				c.Refuse(tunnel.Errorf(tunnel.CodeRefused, "dial: connection refused"))
				return
			}
			sinks = append(sinks, e)
		}}
		play(t, record(in, max(1, size%(16<<10))), false, cfg, func(*Session) {}, func() {
			for i, e := range sinks {
				if _, ended, _, aborted := e.State(); !ended && aborted == nil {
					t.Errorf("nobody told connection %d that it is over", i)
				}
			}
		})
	})
}
