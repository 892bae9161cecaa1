// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"bytes"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

// modelEnd is one end of a stream of TestModel: what it has sent, and what has come.
type modelEnd struct {
	st    *Stream
	other *modelEnd
	dec   wire.StreamDecoder

	// Used by the schedule only.
	said     []byte
	handed   int // bytes of data for which Sent is to be called
	finished bool
	dropped  bool
	reset    bool // by this end, whose handler is not told

	mu     sync.Mutex
	got    []byte
	unread int
	slow   bool
	sent   int
	ended  bool
	closed int
	err    error
	wrong  string // what must not happen
}

func (m *modelEnd) Headers([]Field) {}

func (m *modelEnd) Data(p []byte) error {
	m.mu.Lock()
	if m.ended || m.closed > 0 {
		m.wrong = "data behind the end"
	}
	err := m.dec.Feed(p, m)
	m.unread += len(p)
	m.mu.Unlock()
	m.consume(false)
	return err
}

func (m *modelEnd) HandlePacket(*wire.Packet) error { m.got = append(m.got, controlByte); return nil }

func (m *modelEnd) HandleData(_ int64, piece []byte) error {
	m.got = append(m.got, piece...)
	return nil
}

func (m *modelEnd) End() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended || m.closed > 0 {
		m.wrong = "an end behind the end"
	}
	if !m.dec.Idle() {
		m.wrong = "an end within a message"
	}
	m.ended = true
}

func (m *modelEnd) Closed(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed++
	m.err = err
}

// Sent has a lock of its own, in effect: no other method of Conn is called under mu.
func (m *modelEnd) Sent(n int) {
	m.mu.Lock()
	m.sent += n
	m.mu.Unlock()
}

// consume gives back what has come, unless the end is slow.
func (m *modelEnd) consume(also bool) {
	m.mu.Lock()
	n := m.unread
	if m.slow && !also {
		n = 0
	}
	m.unread -= n
	m.mu.Unlock()
	if n > 0 {
		m.st.Consumed(n)
	}
}

func (m *modelEnd) hasten() {
	m.mu.Lock()
	m.slow = false
	m.mu.Unlock()
	m.consume(true)
}

// over reports whether the stream has ended there.
func (m *modelEnd) over() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed > 0
}

// step does something to an end as the schedule says.
func (m *modelEnd) step(rt *rapid.T) {
	quiet := m.finished || m.dropped // nothing may come behind
	switch op := rapid.IntRange(0, 9).Draw(rt, "op"); {
	case op <= 3 && !quiet:
		id := rapid.Int64Range(1, 2).Draw(rt, "connection")
		p := make([]byte, rapid.IntRange(1, buffer.MaxPayload).Draw(rt, "bytes"))
		for i := range p {
			p[i] = byte(id)*100 + byte((len(m.said)+i)%100)/2 // below controlByte
		}
		if m.st.SendData(id, m, buffer.From(p)) {
			m.said = append(m.said, p...)
			m.handed += len(p)
		}
	case op == 4 && !quiet:
		msg := wire.AppendMessage(nil, &wire.Packet{Payload: wire.CloseRsp, ConnID: 1, Error: "by the test"})
		m.said = append(m.said, controlByte)
		if rapid.Bool().Draw(rt, "at once") {
			m.st.SendControl(msg)
		} else {
			m.st.QueueControl(msg)
		}
	case op == 5:
		m.consume(true)
	case op == 6:
		m.st.Flush()
		m.st.Conn().Ping(time.Now())
	case op == 7 && rapid.IntRange(0, 3).Draw(rt, "finish") == 0:
		m.finished = true
		m.st.Finish([]Field{{"grpc-status", "0"}})
	case op == 8 && !quiet && rapid.IntRange(0, 3).Draw(rt, "drop") == 0:
		m.dropped = true
		m.st.Drop(m)
	default:
		time.Sleep(time.Duration(rapid.IntRange(0, 200).Draw(rt, "us")) * time.Microsecond)
	}
}

// heard checks what came against what the other end said. All of it, if the stream
// has ended in an orderly way; else a beginning.
func (m *modelEnd) heard(rt *rapid.T, orderly bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	said := m.other.said
	switch {
	case m.wrong != "":
		rt.Fatal(m.wrong)
	case m.closed != 1 && !(m.reset && m.closed == 0):
		rt.Fatalf("it was closed %d times", m.closed)
	case orderly && (!m.ended || m.err != nil):
		rt.Fatalf("end: %v, closed with %v", m.ended, m.err)
	case m.other.dropped: // control messages stay, and of the data a beginning
		said = bytes.ReplaceAll(said, []byte{controlByte}, nil)
		if got := bytes.ReplaceAll(m.got, []byte{controlByte}, nil); !bytes.HasPrefix(said, got) {
			rt.Fatalf("%d bytes of data came that are no beginning of the %d that were sent", len(got), len(said))
		}
		if orderly && bytes.Count(m.got, []byte{controlByte}) != bytes.Count(m.other.said, []byte{controlByte}) {
			rt.Fatal("control messages were dropped")
		}
	case orderly && !bytes.Equal(m.got, said):
		rt.Fatalf("%d bytes and messages came, %d were sent", len(m.got), len(said))
	case !bytes.HasPrefix(said, m.got):
		rt.Fatalf("%d bytes and messages came that are no beginning of the %d that were sent", len(m.got), len(said))
	}
}

// settled checks that all that an end has handed over was accounted for.
func (m *modelEnd) settled(rt *rapid.T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sent != m.handed {
		rt.Fatalf("%d of %d bytes were reported as gone", m.sent, m.handed)
	}
}
