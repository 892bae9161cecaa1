package h2

import (
	"errors"
	"testing"

	"golang.org/x/net/http2"
)

// TestDataBehindEnd: a client that sends behind the end of a stream loses that stream,
// whose handler is told why; another stream of the connection goes on.
func TestDataBehindEnd(t *testing.T) {
	first, second := newOrderly(), newOrderly()
	handlers := []*orderly{first, second}
	p := newPeer(t, Config{OnStream: func(st *Stream, _ []Field) {
		st.SetHandler(handlers[0])
		handlers = handlers[1:]
		st.WriteHeaders([]Field{{":status", "200"}})
	}})
	p.request(1)
	p.request(3)
	_ = p.fr.WriteData(1, true, []byte("all"))
	_ = p.fr.WriteData(1, false, []byte("late"))
	_ = p.fr.WriteData(3, true, []byte("other"))
	p.read(t, "reset", func(f http2.Frame) bool {
		r, ok := f.(*http2.RSTStreamFrame)
		return ok && r.StreamID == 1 && r.ErrCode == http2.ErrCodeStreamClosed
	})
	var se *StreamError
	if err := <-first.closed; !errors.As(err, &se) || se.Breach == "" {
		t.Errorf("closed by %v", err)
	}
	<-second.ended
	if string(first.data) != "all" || string(second.data) != "other" {
		t.Errorf("data %q and %q", first.data, second.data)
	}
}

// orderly is a handler that notes what comes, and that nothing comes behind the last
// call.
type orderly struct {
	data   []byte
	ended  chan struct{}
	closed chan error
}

func newOrderly() *orderly {
	return &orderly{ended: make(chan struct{}), closed: make(chan error, 1)}
}

func (o *orderly) Headers([]Field) {}

func (o *orderly) Data(p []byte) error { o.data = append(o.data, p...); return nil }

func (o *orderly) End() { close(o.ended) }

func (o *orderly) Closed(err error) { o.closed <- err }

// TestEndBeforeClosed: the end of a stream is told before it is closed, also when the
// other direction ends at the same moment.
func TestEndBeforeClosed(t *testing.T) {
	for range 100 {
		var st *Stream
		h := &endThenClosed{closed: make(chan bool, 1)}
		opened := make(chan struct{})
		p := newPeer(t, Config{OnStream: func(s *Stream, _ []Field) { st = s; s.SetHandler(h); close(opened) }})
		p.request(1)
		<-opened
		go st.Finish([]Field{{"grpc-status", "0"}})
		_ = p.fr.WriteData(1, true, []byte("x"))
		if !<-h.closed {
			t.Fatal("closed before the end was told")
		}
		_ = p.nc.Close()
	}
}

// endThenClosed tells at Closed whether End came before. It has no lock: the calls
// must not come at once.
type endThenClosed struct {
	end    bool
	closed chan bool
}

func (*endThenClosed) Headers([]Field) {}

func (*endThenClosed) Data([]byte) error { return nil }

func (h *endThenClosed) End() { h.end = true }

func (h *endThenClosed) Closed(error) { h.closed <- h.end }
