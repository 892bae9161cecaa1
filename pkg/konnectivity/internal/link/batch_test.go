// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
)

// pair returns both ends of a TCP connection.
func pair(t *testing.T) (near, far net.Conn) {
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

// fakeGate counts its calls, and refuses turns if refuse is set.
type fakeGate struct {
	waits, answers int
	refuse         error
}

func (g *fakeGate) Waits() { g.waits++ }

func (g *fakeGate) Answers() { g.answers++ }

func (g *fakeGate) Computes() error { return g.refuse }

// TestBatchConnForgets checks that what was read ahead is released when a gate returns an
// error, and when the connection is closed before it was taken.
func TestBatchConnForgets(t *testing.T) {
	refused := errors.New("no turn")
	for _, refuse := range []error{refused, nil} {
		before := buffer.InUse() // may shrink while other tests release their buffers
		near, far := pair(t)
		if _, err := far.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		b := NewBatchConn(near, &fakeGate{refuse: refuse})
		if _, err := b.Read(make([]byte, 10)); !errors.Is(err, refuse) {
			t.Errorf("read: %v, want %v", err, refuse)
		}
		if refuse == nil {
			if buffer.InUse() == before {
				t.Error("nothing was read ahead")
			}
			b.Close()
			if _, err := b.Read(make([]byte, 10)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("read behind Close: %v", err)
			}
		}
		sinktest.Eventually(t, "nothing is left", func() bool { return buffer.InUse() <= before })
	}
}

// asTLS imitates a connection of crypto/tls with a batchConn below.
type asTLS struct{ net.Conn }

func (t asTLS) NetConn() net.Conn { return t.Conn }

// only hides the type of a connection.
type only struct{ net.Conn }

// TestRuns checks that consecutive data of one stream is passed on together and in order,
// and does not wait for data that has not arrived: another frame, or the rest of one.
func TestRuns(t *testing.T) {
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"socket": func(nc net.Conn) net.Conn { return nc },
		"other":  func(nc net.Conn) net.Conn { return only{nc} },
	} {
		t.Run(name, func(t *testing.T) {
			near, far := pair(t)
			l := New(asTLS{NewBatchConn(wrap(near), nil)}, 1<<20, Config{})
			done := make(chan error, 1)
			var sinks [2]*sinktest.Sink
			answers := []byte(nil)
			for i := range sinks {
				sinks[i] = sinktest.NewSink(nil, true)
				st, err := l.Dial("x:1", sinks[i], false)
				if err != nil {
					t.Fatal(err)
				}
				answers = append(answers, frame(typeDialed, st.id, nil)...)
			}
			go func() { done <- l.Run() }()
			send := func(b []byte) {
				if _, err := far.Write(b); err != nil {
					t.Error(err)
				}
			}
			wait := func(i, n int) {
				t.Helper()
				sinktest.Eventually(t, "all has come", func() bool { return len(sinks[i].Got()) == n })
			}
			send(answers)
			part := make([]byte, 2*smallFrame)
			big := frame(typeData, 1, part)
			var run []byte
			for range 3 {
				run = append(run, big...)
			}
			cut := frame(typeData, 2, part)
			send(append(run, cut[:len(cut)-1]...))
			wait(0, 3*len(part))
			if n := sinks[0].Calls(); name == "socket" && n != 1 {
				t.Errorf("it came in %d pieces", n)
			}
			send(cut[len(cut)-1:])
			wait(1, len(part))
			send(append(append(append([]byte(nil), big...), frame(typeData, 2, []byte("key"))...), big[:headerLen]...))
			wait(0, 4*len(part))
			wait(1, len(part)+len("key"))
			far.Close()
			if err := <-done; err == nil {
				t.Error("the link has ended without a reason")
			}
		})
	}
}

// TestBatchConnGate checks that the gate is called before each read and write that may
// block, as long as writes are not collected.
func TestBatchConnGate(t *testing.T) {
	near, far := pair(t)
	gate := &fakeGate{}
	b := NewBatchConn(near, gate)
	if _, err := b.Write([]byte("hello")); err != nil || gate.answers != 1 {
		t.Fatalf("a write told the gate %d times, %v", gate.answers, err)
	}
	if _, err := io.CopyN(far, far, 5); err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 1)
	if _, err := b.Read(one); err != nil || gate.waits != 1 {
		t.Fatalf("a read told the gate %d times, %v", gate.waits, err)
	}
	if _, err := b.Read(one); err != nil || gate.waits != 1 {
		t.Fatalf("a read of what is there already told the gate, %v", err)
	}
}
