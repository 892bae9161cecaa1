package sock

import (
	"bytes"
	"io"
	"net"
	"testing"

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
