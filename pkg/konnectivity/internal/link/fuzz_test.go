// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"io"
	"maps"
	"net"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
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

// join concatenates frames.
func join(frames ...[]byte) []byte { return bytes.Join(frames, nil) }

// FuzzServer feeds a server that is dialing with what an agent might send.
// Whatever that is, the link ends, all streams end and nothing stays in memory.
func FuzzServer(f *testing.F) {
	f.Add(join(frame(typeDialed, 1, nil), frame(typeData, 1, []byte("hello")), frame(typeFin, 1, nil)))
	f.Add(join(frame(typeDialFail, 1, []byte("\x01no")), frame(typeDialed, 2, nil), frame(typeReset, 2, []byte("why"))))
	f.Add(join(frame(typeDialed, 1, nil), frame(typeCredit, 1, []byte{0, 1, 0, 0}), frame(typeClose, 1, nil), frame(typePing, 0, []byte("12345678"))))
	f.Add(join(frame(typeDrain, 0, nil), frame(200, 7, []byte("new")), frame(typeData, 9, []byte("never opened"))))
	f.Add(join(frame(typeClose, 1, nil), frame(typeFin, 2, nil), frame(typeDialed, 1, nil)))
	f.Add(join(frame(typeCredit, 1, []byte{0, 1, 0, 0}), frame(typeReset, 2, []byte("early"))))
	f.Add([]byte{typeData, 0xff, 0xff, 0xff, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		l := New(&tape{bytes.NewReader(in)}, 1<<16, Config{})
		var sinks []*sinktest.Sink
		for range 2 {
			s := sinktest.NewSink(nil, false)
			if _, err := l.Dial("a:1", s, false); err != nil {
				t.Fatal(err)
			}
			sinks = append(sinks, s)
		}
		if err := l.Run(); err == nil {
			t.Error("the link ended without a reason")
		}
		if n := l.Streams(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
		for i, s := range sinks {
			select {
			case <-s.Answered: // an answer, and perhaps an end
			default:
				if _, _, _, aborted := s.State(); aborted == nil {
					t.Errorf("stream %d has neither an answer nor an end", i)
				}
			}
		}
	})
}

// FuzzAgent does the same for an agent.
func FuzzAgent(f *testing.F) {
	f.Add(join(frame(typeDial, 1, []byte("a:1")), frame(typeData, 1, []byte("hello")), frame(typeFin, 1, nil)))
	f.Add(join(frame(typeDial, 1, []byte("a:1")), frame(typeReset, 1, nil), frame(typeDial, 2, []byte("b:2")), frame(typeClose, 2, nil)))
	f.Add(join(frame(typeDial, 5, nil), frame(typeDial, 5, nil)))
	f.Add(join(frame(typeDrained, 0, nil), frame(typePong, 0, []byte("1")), frame(typeCredit, 3, nil)))
	f.Fuzz(func(t *testing.T, in []byte) {
		l := New(&tape{bytes.NewReader(in)}, 1<<16, Config{OnDial: func(st *Stream, address string) {
			st.SetReceiver(sinktest.NewSink(st, false))
			if len(address)%2 == 0 {
				st.Refuse(&tunnel.DialError{Code: tunnel.CodeRefused, Message: address})
				return
			}
			st.Accept()
		}})
		_ = l.Run()
		if n := l.Streams(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

// FuzzHandshake parses HELLO frames and answers to HELLO. It also encodes parsed
// fields and parses them again.
func FuzzHandshake(f *testing.F) {
	f.Add(frame(typeHello, 0, appendFields("agentID", "a", "window", "65536", "have", "x,y")))
	f.Add(frame(typeHello, 0, []byte("\x01a\x00\x00\x01a\x00\x00")))
	f.Add(frame(typeRefuse, 0, []byte("no")))
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := ReadHello(&tape{bytes.NewReader(in)})
		if err == nil && (h.AgentID == "" || h.Window < 1) {
			t.Errorf("accepted %+v", h)
		}
		w, err := SendHello(&tape{bytes.NewReader(in)}, Hello{AgentID: "a", Window: 1})
		if err == nil && (w.ServerID == "" || w.Window < 1) {
			t.Errorf("accepted %+v", w)
		}
		fields, err := parseFields(in)
		if err != nil {
			return
		}
		var pairs []string
		for k, v := range fields {
			pairs = append(pairs, k, v)
		}
		again, err := parseFields(appendFields(pairs...))
		if err != nil || !maps.Equal(again, fields) {
			t.Errorf("%v became %v, %v", fields, again, err)
		}
	})
}

var _ io.ReadWriteCloser = (*tape)(nil)
