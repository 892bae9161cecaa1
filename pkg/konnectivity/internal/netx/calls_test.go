// SPDX-License-Identifier: Apache-2.0

package netx

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Each part of what one call reads or writes is where it belongs, also with more parts
// than have room on the stack, and with empty ones.
func TestVectors(t *testing.T) {
	near, far := socketPair(t)
	var parts [][]byte
	var want []byte
	for i := range 3 * maxBurst {
		p := make([]byte, i%4*100)
		for j := range p {
			p[j] = byte(rand.Uint32())
		}
		parts, want = append(parts, p), append(want, p...)
	}
	onFD(t, near, func(fd int) {
		if n, err := writev(fd, parts); n != len(want) || err != nil {
			t.Errorf("wrote %d of %d bytes: %v", n, len(want), err)
		}
		if n, err := readv(fd, [][]byte{make([]byte, 1)}); n != 0 || !errors.Is(err, syscall.EAGAIN) {
			t.Errorf("nothing is there: read %d bytes, %v", n, err)
		}
	})
	got := make([][]byte, len(parts))
	for i, p := range parts {
		got[i] = make([]byte, len(p))
	}
	onFD(t, far, func(fd int) {
		if n, err := readv(fd, got); n != len(want) || err != nil {
			t.Errorf("read %d of %d bytes: %v", n, len(want), err)
		}
	})
	if !bytes.Equal(bytes.Join(got, nil), want) {
		t.Error("what was read is not what was written")
	}
}

func onFD(t *testing.T, nc net.Conn, f func(fd int)) {
	t.Helper()
	if err := rawOf(nc).Control(func(fd uintptr) { f(int(fd)) }); err != nil {
		t.Fatal(err)
	}
}

// A Writer waits for a slow reader, and loses nothing.
func TestWriterWaits(t *testing.T) {
	near, far := socketPair(t)
	want := make([]byte, 16<<20)
	for i := range want {
		want[i] = byte(rand.Uint32())
	}
	go func() {
		w := NewWriter(near)
		for rest := want; len(rest) > 0; {
			n, err := w.Write(rest[:min(len(rest), 1<<20)])
			if err != nil {
				t.Error(err)
				break
			}
			rest = rest[n:]
		}
		near.Close()
	}()
	got, err := io.ReadAll(far)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got %d of %d bytes, or other ones", len(got), len(want))
	}
}

// It says how much went until the deadline, and what it wrote to when that is gone.
func TestWriterFails(t *testing.T) {
	near, far := socketPair(t)
	w := NewWriter(near)
	if err := near.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	n, err := w.Write(make([]byte, 64<<20))
	if n == 0 || n == 64<<20 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("to one that does not read: wrote %d bytes, %v", n, err)
	}
	if err := near.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	Abort(far)
	for i := 0; err == nil || errors.Is(err, os.ErrDeadlineExceeded); i++ {
		if _, err = w.Write([]byte("more")); i == 1000 {
			t.Fatal("no error after a reset")
		}
	}
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("after a reset: %v", err)
	}
	if to := far.LocalAddr().String(); !strings.HasPrefix(err.Error(), "write tcp ") || !strings.Contains(err.Error(), to) {
		t.Errorf("error %q does not name %s", err, to)
	}
	near.Close()
	if _, err := w.Write([]byte("more")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("on a closed connection: %v", err)
	}
}
