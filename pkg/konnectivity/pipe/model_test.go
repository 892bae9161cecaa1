package pipe_test

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/pipe"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/sock"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel"
)

// model is an End and what a connection would be that loses nothing: two streams of
// bytes, each with its end behind it.
type model struct {
	*rig
	rt *rapid.T

	up, granted    int // bytes that the far end has written, and that the window allowed
	down, read     int // bytes that the link has given, and that the far end has read
	upEnd, downEnd bool
	held           bool
	farGot         []byte
}

func upByte(k int) byte   { return byte(k % 251) }
func downByte(k int) byte { return byte(k % 241) }

func fill(from, n int, at func(int) byte) []byte {
	b := make([]byte, n)
	for k := range b {
		b[k] = at(from + k)
	}
	return b
}

// unread is how much the far end may write beyond the window: what the kernel takes.
const unread = 32 << 10

func (m *model) step() {
	switch rapid.IntRange(0, 7).Draw(m.rt, "op") {
	case 0, 1:
		n := min(rapid.IntRange(1, 20_000).Draw(m.rt, "up"), m.granted+unread-m.up)
		if m.upEnd || n <= 0 {
			return
		}
		if _, err := m.far.Write(fill(m.up, n, upByte)); err != nil {
			m.rt.Fatalf("the far end cannot write: %v", err)
		}
		m.up += n
	case 2, 3:
		if n := rapid.IntRange(1, 400_000).Draw(m.rt, "down"); !m.downEnd {
			m.data(fill(m.down, n, downByte))
			m.down += n
		}
	case 4:
		m.grant(rapid.IntRange(1, 50_000).Draw(m.rt, "window"))
	case 5:
		m.readSome(rapid.IntRange(1, 300_000).Draw(m.rt, "read"))
	case 6:
		switch rapid.IntRange(0, 5).Draw(m.rt, "end") {
		case 0:
			m.endUp()
		case 1:
			m.endDown()
		case 2:
			m.open()
		}
	case 7:
		time.Sleep(time.Duration(rapid.IntRange(0, 300).Draw(m.rt, "us")) * time.Microsecond)
	}
}

func (m *model) grant(n int) {
	m.granted += n
	m.st.mu.Lock()
	m.st.window += n
	m.st.mu.Unlock()
	m.Writable()
}

func (m *model) readSome(n int) {
	if n = min(n, m.down-m.read); m.held || n == 0 {
		return
	}
	b := make([]byte, n)
	_ = m.far.SetReadDeadline(time.Now().Add(time.Minute))
	if k, err := io.ReadFull(m.far, b); err != nil {
		m.rt.Fatalf("the far end reads %d of %d bytes: %v", k, n, err)
	}
	m.farGot = append(m.farGot, b...)
	m.read += n
}

func (m *model) endUp() {
	if !m.upEnd {
		m.upEnd = true
		_ = m.far.CloseWrite()
	}
}

func (m *model) endDown() {
	if !m.downEnd {
		m.downEnd = true
		m.End.End()
	}
}

// open ends the hold, which has begun with the first bytes.
func (m *model) open() {
	if m.held && m.down > 0 {
		m.Open()
	}
	m.held = false
}

// rest has the far end read to the end and wants that to be a reset, or an orderly one
// behind all bytes.
func (m *model) rest(reset, all bool) {
	_ = m.far.SetReadDeadline(time.Now().Add(time.Minute))
	b, err := io.ReadAll(m.far)
	m.farGot = append(m.farGot, b...)
	wasReset := errors.Is(err, syscall.ECONNRESET)
	whole := len(m.farGot) == m.down
	switch {
	case err != nil && !wasReset:
		m.rt.Fatalf("the far end sees %v", err)
	case err == nil && !whole:
		m.rt.Fatalf("the far end sees an end behind %d of %d bytes", len(m.farGot), m.down)
	case all && !whole:
		m.rt.Fatalf("the far end sees %d of %d bytes, %v", len(m.farGot), m.down, err)
	case wasReset && !reset:
		m.rt.Fatalf("the far end sees a reset")
	case !wasReset && reset && !m.downEnd:
		m.rt.Fatal("the far end sees an end for a reset")
	}
}

// over wants the bytes to be the right ones and the stream to have been told of an end,
// one of those given.
func (m *model) over(how ...string) {
	m.eventually("the stream is told of the end", func() bool {
		_, _, ended := m.st.state()
		for _, h := range how {
			if strings.Contains(ended, h) {
				return true
			}
		}
		return false
	})
	m.st.mu.Lock()
	defer m.st.mu.Unlock()
	for k, b := range m.st.got {
		if b != upByte(k) {
			m.rt.Fatalf("byte %d to the link is %d", k, b)
		}
	}
	for k, b := range m.farGot {
		if b != downByte(k) {
			m.rt.Fatalf("byte %d to the far end is %d", k, b)
		}
	}
	// An end that is no reset stands behind all bytes.
	if ended := m.st.ended; !strings.Contains(ended, "reset") && len(m.st.got) != m.up || len(m.st.got) > m.up {
		m.rt.Fatalf("the stream got %d of %d bytes, and then %s", len(m.st.got), m.up, ended)
	}
}

// delivered waits until the kernel on the End's side has what the far end wrote.
func (m *model) delivered() {
	far := sock.New(m.far)
	m.eventually("the kernel has all bytes", func() bool { return far.Unacked() == 0 })
}

// lastWords has the link write to a far end that is gone, now and then before the End
// may send what that wrote before, and wants all of that.
func (m *model) lastWords() {
	late := rapid.Bool().Draw(m.rt, "late")
	if !late {
		m.grant(1 << 20)
	}
	m.open()
	for i := 0; i < 3 && !m.downEnd; i++ {
		m.data([]byte("too late"))
		time.Sleep(time.Duration(rapid.IntRange(0, 300).Draw(m.rt, "us")) * time.Microsecond)
	}
	if late {
		m.grant(1 << 20)
	}
	m.eventually("what the far end wrote arrives", func() bool { got, _, _ := m.st.state(); return got == m.up })
}

// eventually wants something to come true.
func (m *model) eventually(what string, f func() bool) {
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(end) {
			got, held, ended := m.st.state()
			m.rt.Fatalf("never: %s; the stream has %d of %d bytes, %d held, ended: %s", what, got, m.up, held, ended)
		}
	}
}

// endings are how a connection may be over.
var endings = []func(m *model){
	func(m *model) { // both directions end
		m.endDown()
		m.endUp()
		m.open()
		m.grant(1 << 20)
		m.rest(false, true)
		m.over("fin", "close") // the latter where the socket's end is seen when both have ended
	},
	func(m *model) { // the link resets the stream
		m.Aborted(&tunnel.ResetError{Reason: "by the model"})
		m.open()
		m.rest(true, true)
	},
	func(m *model) { // the link is gone
		m.Aborted(tunnel.ErrLinkClosed)
		m.open()
		m.rest(true, false)
	},
	func(m *model) { // the far end resets
		m.delivered()
		_ = m.far.SetLinger(0)
		_ = m.far.Close()
		m.lastWords()
		switch {
		case m.upEnd && m.downEnd: // it was over before
			m.over("reset", "close", "fin")
		case m.upEnd:
			m.over("reset", "close")
		default:
			m.over("reset")
		}
	},
	func(m *model) { // the far end closes, which is seen when something is written to it
		m.delivered()
		unread := m.down > m.read // then the kernel makes a reset of it
		_ = m.far.Close()
		m.lastWords()
		if m.upEnd || unread {
			m.over("reset", "close", "fin")
		} else {
			m.over("close", "fin")
		}
		m.endDown()
	},
	func(m *model) { // the dialler is gone
		m.endDown()
		m.PeerClosed()
		m.open()
		m.grant(1 << 20)
		m.rest(true, true)
		_ = m.far.Close() // else what waited for it has given it more patience than Linger
	},
}

// TestModel drives an End with random schedules: bytes arrive in order, an orderly end
// stands behind all of them and nothing else does, the socket is closed once, and
// nothing is held afterwards.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		before := buf.InUse()
		m := &model{rt: rt, held: rapid.Bool().Draw(rt, "hold")}
		r, stop := startRig(t, pipe.Config{Linger: 20 * time.Millisecond, FirstData: func() bool { return m.held }}, 0)
		defer stop()
		m.rig = r
		_ = r.far.SetReadBuffer(128 << 10)
		for range rapid.IntRange(0, 40).Draw(rt, "steps") {
			m.step()
		}
		endings[rapid.IntRange(0, len(endings)-1).Draw(rt, "ending")](m)
		m.grant(1 << 20)
		select {
		case err := <-r.closed:
			rt.Logf("closed by %v", err)
		case <-time.After(10 * time.Second):
			rt.Fatal("the socket stays")
		}
		m.eventually("nothing is held", func() bool { _, held, _ := r.st.state(); return held == 0 && buf.InUse() <= before })
		if len(r.closed) > 0 {
			rt.Fatalf("closed again, by %v", <-r.closed)
		}
	})
}
