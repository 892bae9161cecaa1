// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bytes"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/membudget"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

// tape is a connection whose peer has already sent everything that it will send.
type tape struct{ in *bytes.Reader }

func (t *tape) Read(p []byte) (int, error)     { return t.in.Read(p) }
func (*tape) Write(p []byte) (int, error)      { return len(p), nil }
func (*tape) Close() error                     { return nil }
func (*tape) LocalAddr() net.Addr              { return nil }
func (*tape) RemoteAddr() net.Addr             { return nil }
func (*tape) SetDeadline(time.Time) error      { return nil }
func (*tape) SetReadDeadline(time.Time) error  { return nil }
func (*tape) SetWriteDeadline(time.Time) error { return nil }

// record returns a connection with one stream, on which the messages arrive in DATA
// frames of up to size bytes.
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

// messages encodes packets as they arrive on a stream.
func messages(packets ...wire.Packet) (b []byte) {
	for i := range packets {
		b = wire.AppendMessage(b, &packets[i])
	}
	return b
}

// play lets a session read a record to its end. It then checks that all receivers have
// been notified, and that neither the account nor the buffers hold anything, whatever
// the record was.
func play(t *testing.T, in *tape, server bool, cfg Config, begin func(*Session), over func()) {
	before := buffer.InUse()
	book := membudget.New(membudget.Config{})
	var s *Session
	var account *membudget.Account
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
	sinktest.Eventually(t, "nothing is left", func() bool {
		return s.Len() == 0 && account.Held() == 0 && buffer.InUse() <= before
	})
}

// FuzzServer feeds a server that is dialing with what an agent might send.
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
		var sinks []*sinktest.Sink
		play(t, record(in, max(1, size%(16<<10))), true, Config{ConnBuffer: 1 << 10}, func(s *Session) {
			for random := range int64(2) {
				e := sinktest.NewSink(nil, len(in)%2 == 0)
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
						t.Errorf("dial %d has neither an answer nor an end", i)
					}
				}
			}
		})
	})
}

// renumber gives the last dial a number that a fuzzer can guess.
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

// FuzzAgent feeds an agent with what a server might send.
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
		var sinks []*sinktest.Sink
		cfg := Config{ConnBuffer: 1 << 10, OnDial: func(c *Conn, address string) {
			e := sinktest.NewSink(c, len(in)%2 == 0)
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
					t.Errorf("connection %d has no end", i)
				}
			}
		})
	})
}
