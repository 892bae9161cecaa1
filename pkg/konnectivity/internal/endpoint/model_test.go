// SPDX-License-Identifier: Apache-2.0

package endpoint_test

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/endpoint"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
)

// model is an End next to a perfect connection: two streams of bytes, each followed by
// its end.
type model struct {
	*rig
	rt *rapid.T

	up, granted    int // bytes that the far end has written, and that the window has allowed
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

// unread is how much the far end may write beyond the window: the size of the kernel's
// buffers.
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

// open ends the hold, which began with the first bytes.
func (m *model) open() {
	if m.held && m.down > 0 {
		m.Open()
	}
	m.held = false
}

// rest reads the rest at the far end and checks that it ends with a reset, or in an
// orderly way after all bytes.
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

// over checks that the bytes are correct and that the stream has got one of the given
// ends.
func (m *model) over(how ...string) {
	m.eventually("the stream gets the end", func() bool {
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
	// An end that is not a reset comes after all bytes.
	if ended := m.st.ended; !strings.Contains(ended, "reset") && len(m.st.got) != m.up || len(m.st.got) > m.up {
		m.rt.Fatalf("the stream got %d of %d bytes, and then %s", len(m.st.got), m.up, ended)
	}
}

// delivered waits until the kernel on the End's side has what the far end wrote.
func (m *model) delivered() {
	far := netx.New(m.far)
	m.eventually("the kernel has all bytes", func() bool { return far.Unacked() == 0 })
}

// lastWords lets the link write to a far end that has closed, sometimes before the End
// may send what that far end wrote earlier, and checks that all of it arrives.
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

// eventually waits until a condition is true.
func (m *model) eventually(what string, f func() bool) {
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(end) {
			got, held, ended := m.st.state()
			m.rt.Fatalf("never: %s; the stream has %d of %d bytes, %d held, ended: %s", what, got, m.up, held, ended)
		}
	}
}

// endings are the ways in which a connection may end.
var endings = []func(m *model){
	func(m *model) { // both directions end
		m.endDown()
		m.endUp()
		m.open()
		m.grant(1 << 20)
		m.rest(false, true)
		m.over("fin", "close") // "close" if the socket's end is seen when both directions have ended
	},
	func(m *model) { // the link resets the stream
		m.Aborted(&tunnel.ResetError{Reason: "by the model"})
		m.open()
		m.rest(true, true)
	},
	func(m *model) { // the link has ended
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
		case m.upEnd && m.downEnd: // it had ended before
			m.over("reset", "close", "fin")
		case m.upEnd:
			m.over("reset", "close")
		default:
			m.over("reset")
		}
	},
	func(m *model) { // the far end closes, which the End notices when something is written to it
		m.delivered()
		unread := m.down > m.read // if so, the kernel sends a reset
		_ = m.far.Close()
		m.lastWords()
		if m.upEnd || unread {
			m.over("reset", "close", "fin")
		} else {
			m.over("close", "fin")
		}
		m.endDown()
	},
	func(m *model) { // the frontend has gone
		m.endDown()
		m.PeerClosed()
		m.open()
		m.grant(1 << 20)
		m.rest(true, true)
		_ = m.far.Close() // otherwise data that waited for it would have extended Linger
	},
}

// TestModel drives an End with random schedules. Bytes arrive in order. An orderly end
// comes after all bytes, and only an orderly end does. The socket is closed once, and
// nothing is held afterwards.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		before := buffer.InUse()
		m := &model{rt: rt, held: rapid.Bool().Draw(rt, "hold")}
		r, stop := startRig(t, endpoint.Config{Linger: 20 * time.Millisecond, FirstData: func() bool { return m.held }}, 0)
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
		m.eventually("nothing is held", func() bool { _, held, _ := r.st.state(); return held == 0 && buffer.InUse() <= before })
		if len(r.closed) > 0 {
			rt.Fatalf("closed again, by %v", <-r.closed)
		}
	})
}
