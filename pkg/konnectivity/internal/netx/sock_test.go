// SPDX-License-Identifier: Apache-2.0

package netx

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
)

// socketPair returns both ends of a TCP connection.
func socketPair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// Reads start with a small buffer, grow with what comes, and shrink again.
func TestReadsTakeTheRoomTheyNeed(t *testing.T) {
	near, far := socketPair(t)
	in := New(near)
	small := func(when string) {
		t.Helper()
		for range rooms { // each step down takes a read
			if _, err := far.Write([]byte("keystroke")); err != nil {
				t.Fatal(err)
			}
			before := buffer.InUse()
			chunks, err := in.ReadChunks(MaxRead)
			if err != nil {
				t.Fatal(err)
			}
			held := buffer.InUse() - before
			for _, c := range chunks {
				c.Release()
			}
			if held <= 1024 {
				return
			}
		}
		t.Errorf("%s: a few bytes are read into more than 1 KiB", when)
	}
	small("at first")
	want := make([]byte, 8<<20)
	for i := range want {
		want[i] = byte(rand.Uint32())
	}
	go func() { _, _ = far.Write(want) }()
	var got []byte
	largest := 0
	for len(got) < len(want) {
		chunks, err := in.ReadChunks(MaxRead)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, c := range chunks {
			got = append(got, c.Bytes()...)
			n += c.Len()
			c.Release()
		}
		largest = max(largest, n)
	}
	if !bytes.Equal(got, want) {
		t.Error("what was read is not what was written")
	}
	if largest <= buffer.MaxPayload {
		t.Errorf("no read of 8 MiB took more than %d bytes", largest)
	}
	small("behind a bulk transfer")
}

// counted is a connection in TLS that counts how often it is closed.
type counted struct {
	net.Conn
	closed atomic.Int32
}

func (c *counted) NetConn() net.Conn { return c.Conn }
func (c *counted) Close() error      { c.closed.Add(1); return c.Conn.Close() }

// TestAbortClosesAll: a connection that is cut closes what is around its socket, too, such as what counts open connections, and its peer
// sees a reset.
func TestAbortClosesAll(t *testing.T) {
	near, far := socketPair(t)
	inner := &counted{Conn: near}
	outer := &counted{Conn: inner}
	Abort(outer)
	if inner.closed.Load() == 0 || outer.closed.Load() == 0 {
		t.Errorf("closed: the inner one %d times, the outer one %d times, want each", inner.closed.Load(), outer.closed.Load())
	}
	_ = far.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer sees %v, want a reset", err)
	}
}
