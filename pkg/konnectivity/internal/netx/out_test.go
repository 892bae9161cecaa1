// SPDX-License-Identifier: Apache-2.0

package netx

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
)

// A peer that sends single bytes must not make a stalled connection hold a
// buffer for each of them.
func TestSmallChunksShareBuffers(t *testing.T) {
	defer goleak.VerifyNone(t)
	near, far := net.Pipe() // takes nothing until it is read
	out := NewOut(near)
	before := buffer.InUse()
	const total = 64 << 10
	want := make([]byte, total)
	for i := range want {
		want[i] = byte(i % 251)
		if err := out.WriteChunks([]*buffer.Chunk{buffer.From(want[i : i+1])}); err != nil {
			t.Fatal(err)
		}
	}
	if held := buffer.InUse() - before; held > 2*total {
		t.Errorf("%d queued bytes hold %d bytes of buffers", total, held)
	}
	out.Close()
	got, err := io.ReadAll(far)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %d bytes, equal %v, %v", len(got), bytes.Equal(got, want), err)
	}
	if left := buffer.InUse() - before; left != 0 {
		t.Errorf("%d bytes of buffers are left", left)
	}
}

// sockets returns both ends of a TCP connection.
func sockets(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if far, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if near, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

// TestCloseAcked: a connection that must not outlive its bytes is closed when the peer's
// kernel has the last one, and not when its own has.
func TestCloseAcked(t *testing.T) {
	defer goleak.VerifyNone(t)
	near, far := sockets(t)
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

// TestQueue: what waits for a socket goes in order, whatever pieces it came in and the
// socket takes, and nothing of it is left behind, also when the peer goes away in between.
func TestQueue(t *testing.T) {
	for name, cut := range map[string]bool{"whole": false, "cut": true} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			before := buffer.InUse()
			near, far := sockets(t)
			out := NewOut(near)
			var wrote atomic.Int64
			failed := make(chan error, 1)
			out.Written = func(n int) { wrote.Add(int64(n)) }
			out.Failed = func(err error) { failed <- err }
			random := rand.New(rand.NewPCG(1, 2))
			var want []byte
			piece := func() []byte {
				p := make([]byte, 1+random.IntN(100<<10))
				for i := range p {
					p[i] = byte(random.Uint32())
				}
				want = append(want, p...)
				return p
			}
			for range 100 {
				if random.IntN(4) == 0 {
					_ = out.Write(piece(), piece())
					continue
				}
				var cs []*buffer.Chunk
				for range 1 + random.IntN(6) {
					for p := piece(); len(p) > 0; {
						c := buffer.From(p[:min(len(p), buffer.MaxPayload)])
						p = p[c.Len():]
						cs = append(cs, c)
					}
				}
				_ = out.WriteChunks(cs)
			}
			if out.Buffered() == 0 {
				t.Fatal("nothing waits")
			}
			out.Close()
			got := make([]byte, 0, len(want))
			for part := make([]byte, 50_000); !cut || len(got) < len(want)/2; {
				n, err := far.Read(part[:1+random.IntN(len(part)-1)])
				if got = append(got, part[:n]...); err != nil {
					break
				}
			}
			if !bytes.Equal(got, want[:len(got)]) || !cut && len(got) < len(want) {
				t.Errorf("%d of %d bytes came, or others", len(got), len(want))
			}
			if cut {
				Abort(far)
				if err := <-failed; err == nil {
					t.Error("the failure has no reason")
				}
			}
			for start := time.Now(); buffer.InUse() > before; time.Sleep(time.Millisecond) {
				if time.Since(start) > time.Minute {
					t.Fatalf("%d bytes of buffers are left", buffer.InUse()-before)
				}
			}
			if n := wrote.Load(); !cut && n != int64(len(want)) || n < int64(len(got)) {
				t.Errorf("%d bytes are said to be written, of %d, and %d were read", n, len(want), len(got))
			}
		})
	}
}

// TestManyChunks: there may be more of them than the system writes with one call.
func TestManyChunks(t *testing.T) {
	near, far := sockets(t)
	out := NewOut(near)
	var cs []*buffer.Chunk
	var want []byte
	for i := range 3000 {
		want = append(want, byte(i))
		cs = append(cs, buffer.From(want[i:]))
	}
	if err := out.WriteChunks(cs); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if got, err := io.ReadAll(far); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes came, or others: %v", len(got), len(want), err)
	}
}
