package sock

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
)

// A peer that sends single bytes must not make a stalled connection hold a
// buffer for each of them.
func TestSmallChunksShareBuffers(t *testing.T) {
	defer goleak.VerifyNone(t)
	near, far := net.Pipe() // takes nothing until it is read
	out := NewOut(near)
	before := buf.InUse()
	const total = 64 << 10
	want := make([]byte, total)
	for i := range want {
		want[i] = byte(i % 251)
		if err := out.WriteChunk(buf.From(want[i : i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if held := buf.InUse() - before; held > 2*total {
		t.Errorf("%d queued bytes hold %d bytes of buffers", total, held)
	}
	out.Close()
	got, err := io.ReadAll(far)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %d bytes, equal %v, %v", len(got), bytes.Equal(got, want), err)
	}
	if left := buf.InUse() - before; left != 0 {
		t.Errorf("%d bytes of buffers are left", left)
	}
}

// TestCloseAcked: a connection that must not outlive its bytes is closed when the peer's
// kernel has the last one, and not when its own has.
func TestCloseAcked(t *testing.T) {
	defer goleak.VerifyNone(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	far, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = far.Close() }()
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	out, ended := NewOut(near), make(chan struct{})
	out.Ended = func() { close(ended) }
	written := 0
	for out.Buffered() == 0 { // until both kernels are full
		if err := out.Write(make([]byte, 64<<10)); err != nil {
			t.Fatal(err)
		}
		written += 64 << 10
	}
	read := 0
	for piece := make([]byte, 4<<10); out.Buffered() > 0; {
		n, err := far.Read(piece)
		if err != nil {
			t.Fatal(err)
		}
		read += n
		time.Sleep(time.Millisecond)
	}
	if unacked(near) == 0 {
		t.Fatal("the peer's kernel has everything already")
	}
	out.CloseAcked()
	select {
	case <-ended:
		t.Errorf("closed with %d bytes on the way", written-read)
	case <-time.After(100 * time.Millisecond):
	}
	rest, err := io.ReadAll(far)
	if err != nil || read+len(rest) != written {
		t.Errorf("read %d of %d bytes, %v", read+len(rest), written, err)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("not closed when the peer has all")
	}
}
