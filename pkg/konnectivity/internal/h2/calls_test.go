// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"bytes"
	"io"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// finisher ends its stream when the peer does, as the server does with a call.
type finisher struct {
	handler
	st     *Stream
	answer bool
}

func (f *finisher) End() {
	if f.answer {
		f.st.SendControl([]byte("x"))
	}
	f.st.Finish([]Field{{"grpc-status", "0"}})
}

// newCallee is a peer of a server that answers calls at their end, or gives them a status
// and nothing else.
func newCallee(t *testing.T, answer bool) *peer {
	return newPeer(t, Config{OnStream: func(st *Stream, _ []Field) {
		st.SetHandler(&finisher{st: st, answer: answer})
		st.WriteHeaders([]Field{{":status", "200"}})
		if answer {
			st.SendControl([]byte("x"))
		}
	}})
}

// TestCallFlood: a client that makes calls and ends them at once, whatever it sends
// before, is cut off as one that resets them.
func TestCallFlood(t *testing.T) {
	for name, end := range map[string]func(p *peer, id uint32){
		"headers": func(p *peer, id uint32) { p.call(id) },
		"data":    func(p *peer, id uint32) { p.request(id); _ = p.fr.WriteData(id, true, []byte("x")) },
		"end and reset": func(p *peer, id uint32) {
			p.call(id)
			_ = p.fr.WriteRSTStream(id, http2.ErrCodeCancel)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newCallee(t, false)
			go func() { _, _ = io.Copy(io.Discard, p.nc) }()
			for id := uint32(1); id < 20*maxResets; id += 2 {
				end(p, id)
			}
			wantCalm(t, p)
		})
	}
}

// TestAnsweredCalls: a client may make and end as many calls as it likes that were answered.
func TestAnsweredCalls(t *testing.T) {
	p := newCallee(t, true)
	for id := uint32(1); id < 6*maxResets; id += 2 {
		p.request(id)
		p.read(t, "the answer", func(f http2.Frame) bool { d, ok := f.(*http2.DataFrame); return ok && d.StreamID == id })
		_ = p.fr.WriteData(id, true, nil)
	}
	wantAlive(t, p)
}

// call sends a request and its end in one frame.
func (p *peer) call(id uint32) {
	_ = p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: requestBlock(), EndHeaders: true, EndStream: true})
}

func requestBlock() []byte {
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	for _, f := range [][2]string{{":method", "POST"}, {":path", "/x"}, {":scheme", "http"}, {":authority", "a"}} {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	return b.Bytes()
}

// BenchmarkCallFlood: what a client's calls cost that end at once. Those beyond the budget
// of a connection are refused with it, so each connection has this many of them.
func BenchmarkCallFlood(b *testing.B) {
	var frames bytes.Buffer
	fr := http2.NewFramer(&frames, nil)
	for id := uint32(1); id < 20_000; id += 2 {
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: requestBlock(), EndHeaders: true, EndStream: true})
	}
	made := 0
	for b.Loop() {
		a, nc := joined(b, "unix")
		c := NewServer(nc, Config{OnStream: func(st *Stream, _ []Field) {
			made++
			st.SetHandler(&finisher{st: st})
			st.WriteHeaders([]Field{{":status", "200"}})
		}})
		done := make(chan struct{})
		go func() { defer close(done); _ = c.Serve() }()
		read := make(chan struct{})
		go func() { defer close(read); _, _ = io.Copy(io.Discard, a) }()
		_, _ = a.Write([]byte(preface))
		_, _ = a.Write(frames.Bytes())
		_ = a.(interface{ CloseWrite() error }).CloseWrite()
		<-done
		_ = a.Close()
		<-read
	}
	b.ReportMetric(float64(made)/float64(b.N), "calls/conn")
}
