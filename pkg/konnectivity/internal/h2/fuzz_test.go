// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"bytes"
	"net"
	"testing"
	"time"
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

// request is a good request with some data, in frames.
func request(b []byte, stream uint32, body string) []byte {
	b = appendHeaders(b, stream, []Field{{Name: ":method", Value: "POST"}, {Name: ":path", Value: "/a/b"}}, false)
	b = appendFrameHeader(b, len(body), frameData, 0, stream)
	return append(b, body...)
}

// FuzzServer gives a server what a client might send after its preface: whatever it
// is, Serve returns, and streams that were opened are closed.
func FuzzServer(f *testing.F) {
	f.Add(request(appendSettings(nil, 65535, 0), 1, "hello"))
	f.Add(request(request(nil, 1, ""), 3, "x"))
	f.Add(appendRST(request(nil, 1, "hello"), 1, CodeCancel))
	f.Add(appendWindowUpdate(appendGoAway(nil, 1, 0, "bye"), 0, 1<<30))
	f.Add([]byte("\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"))
	f.Add([]byte("\xff\xff\xff\x04\x00\x00\x00\x00\x00"))
	f.Add([]byte("\x00\x00\x05\x01\x04\x00\x00\x00\x01\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var all []*handler
		c := NewServer(&tape{bytes.NewReader(append([]byte(preface), in...))}, Config{OnStream: func(st *Stream, _ []Field) {
			h := &handler{}
			all = append(all, h)
			st.SetHandler(h)
			st.WriteHeaders([]Field{{Name: ":status", Value: "200"}})
		}})
		_ = c.Serve()
		for i, h := range all {
			if h.mu.Lock(); !h.closed {
				t.Errorf("stream %d was not closed", i)
			}
			h.mu.Unlock()
		}
	})
}

// FuzzClient does the same for a client with an open stream.
func FuzzClient(f *testing.F) {
	f.Add(appendHeaders(appendSettings(nil, 65535, 100), 1, []Field{{Name: ":status", Value: "200"}, {Name: "serverid", Value: "x"}}, false))
	f.Add(appendHeaders(nil, 1, []Field{{Name: "grpc-status", Value: "16"}}, true))
	f.Add(appendGoAway(appendRST(nil, 1, 8), 0, 2, "no"))
	f.Fuzz(func(t *testing.T, in []byte) {
		c := NewClient(&tape{bytes.NewReader(in)}, Config{})
		h := &handler{}
		st := c.Open([]Field{{Name: ":method", Value: "POST"}, {Name: ":path", Value: "/a"}}, h)
		st.SendControl([]byte("\x00\x00\x00\x00\x00"))
		_ = c.Serve()
		if h.mu.Lock(); !h.closed {
			t.Error("the stream was not closed")
		}
		h.mu.Unlock()
	})
}
