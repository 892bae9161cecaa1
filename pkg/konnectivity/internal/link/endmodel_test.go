// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
)

// valve is a connection whose writes block while it is shut.
type valve struct {
	net.Conn
	flow *sync.Mutex
}

func (v valve) Write(p []byte) (int, error) {
	v.flow.Lock()
	defer v.flow.Unlock()
	return v.Conn.Write(p)
}

// line is both directions of a link of TestEndModel. While it is shut, all frames wait.
type line struct {
	flow sync.Mutex
	shut bool
}

func (l *line) toggle() {
	if l.shut {
		l.flow.Unlock()
	} else {
		l.flow.Lock()
	}
	l.shut = !l.shut
}

func (l *line) open() {
	if l.shut {
		l.toggle()
	}
}

// act is a way to end a stream or one direction of it.
type act int

const (
	actFin act = iota
	actClose
	actOrdered // reset after the data sent before
	actReset   // reset that may overtake the data
)

// lastEnd is one end of a stream of TestEndModel, with all operations on it.
type lastEnd struct {
	*sinktest.Sink
	peer *lastEnd
	sent int
	acts []act
	key  byte // makes the bytes of each end its own
}

func (m *lastEnd) did(acts ...act) bool {
	return slices.ContainsFunc(m.acts, func(a act) bool { return slices.Contains(acts, a) })
}

func (m *lastEnd) reset() bool { return m.did(actOrdered, actReset) }

func (m *lastEnd) firstWas(acts ...act) bool {
	return len(m.acts) > 0 && slices.Contains(acts, m.acts[0])
}

func (m *lastEnd) byteAt(k int) byte { return byte(k) ^ byte(k>>8) ^ m.key }

func (m *lastEnd) reason() string { return fmt.Sprintf("reset by %d", m.key) }

// send sends n bytes if the model and the window allow it.
func (m *lastEnd) send(n int, wait bool) {
	if len(m.acts) > 0 || m.Stream().Window() < n {
		return
	}
	p := make([]byte, n)
	for k := range p {
		p[k] = m.byteAt(m.sent + k)
	}
	m.Stream().Send(buffer.From(p), wait)
	m.sent += n
}

func (m *lastEnd) finish(a act) {
	m.acts = append(m.acts, a)
	switch a {
	case actFin:
		m.Stream().CloseWrite()
	case actClose:
		m.Stream().Close()
	default:
		m.Stream().Reset(m.reason(), a == actOrdered)
	}
}

// step performs one operation on an end, as the schedule says.
func (m *lastEnd) step(rt *rapid.T, l *line) {
	switch op := rapid.IntRange(0, 9).Draw(rt, "op"); op {
	case 0, 1, 2, 3:
		wait := rapid.Bool().Draw(rt, "wait") && !l.shut
		m.send(rapid.IntRange(1, buffer.MaxPayload).Draw(rt, "bytes"), wait)
	case 4:
		l.toggle()
	case 5:
		time.Sleep(time.Duration(rapid.IntRange(0, 300).Draw(rt, "us")) * time.Microsecond)
	default:
		m.finish(act(op - 6))
	}
}

// mustAbort reports whether the end has to learn of a reset by its peer, and cannot have
// got an orderly end of both directions before.
func (m *lastEnd) mustAbort() bool {
	p := m.peer
	switch {
	case !p.reset() || m.did(actClose) || m.reset():
		return false
	case p.firstWas(actOrdered, actReset):
		return true
	}
	return p.firstWas(actFin) && !p.did(actClose) && len(m.acts) == 0
}

// settled reports whether an end has got all notifications that it must get.
func (m *lastEnd) settled() bool {
	_, ended, closed, err := m.State()
	p := m.peer
	switch {
	case m.reset(): // it gets no further notifications
		return true
	case m.mustAbort():
		return err != nil
	case p.firstWas(actClose) && !p.reset() && !m.did(actClose):
		return ended && closed
	}
	return ended || err != nil
}

// judge returns an error if an end got a notification or data that the model excludes.
func (m *lastEnd) judge() error {
	n, ended, closed, err := m.State()
	p := m.peer
	for k, b := range m.Got() {
		if k >= p.sent || b != p.byteAt(k) {
			return fmt.Errorf("byte %d of %d is %d, of %d that were sent", k, n, b, p.sent)
		}
	}
	var by *tunnel.ResetError
	whole := n == p.sent || m.did(actClose) // an end that no longer reads may miss some
	switch {
	case err != nil && !p.reset():
		return fmt.Errorf("aborted, though the peer did not reset: %w", err)
	case err != nil && (!errors.As(err, &by) || by.Reason != p.reason()):
		return fmt.Errorf("a reset is seen as %w", err)
	case ended && p.firstWas(actOrdered, actReset) && !m.did(actClose):
		return errors.New("a reset is seen as an end")
	case ended && !whole:
		return fmt.Errorf("an end behind %d bytes of %d", n, p.sent)
	case err != nil && !p.did(actReset) && !whole:
		return fmt.Errorf("an ordered reset behind %d bytes of %d", n, p.sent)
	case closed && !p.did(actClose):
		return errors.New("told that the peer reads no more, which it never said")
	}
	return nil
}

// TestEndModel ends streams of one link in all ways, with random schedules, also while
// the network takes no data. It compares what each end gets with the operations on its
// peer. Everything that was sent before CloseWrite, Close or an ordered reset arrives.
// An end never replaces a reset, and never comes before all data. A reset may cut data
// that it overtakes, but changes none of it. Other streams of the link are not affected.
func TestEndModel(t *testing.T) {
	l := &line{}
	over := func(nc net.Conn) net.Conn { return valve{nc, &l.flow} }
	e := newEndsOver(t, Config{Window: 512 << 10, MaxWindow: 1 << 20}, over, over)
	rapid.Check(t, func(rt *rapid.T) {
		l.open() // even if the last schedule failed
		var all []*lastEnd
		for i := range rapid.IntRange(1, 4).Draw(rt, "streams") {
			s, a := e.open(t)
			m, o := &lastEnd{Sink: s, key: byte(2 * i)}, &lastEnd{Sink: a, key: byte(2*i + 1)}
			m.peer, o.peer = o, m
			all = append(all, m, o)
		}
		for range rapid.IntRange(1, 8*len(all)).Draw(rt, "steps") {
			all[rapid.IntRange(0, len(all)-1).Draw(rt, "end")].step(rt, l)
		}
		l.open()
		for _, m := range all {
			if len(m.acts) == 0 && !m.peer.reset() {
				m.finish(actFin)
			}
		}
		for _, m := range all {
			sinktest.Eventually(rt, fmt.Sprintf("end %d, which did %v, learns of %v", m.key, m.acts, m.peer.acts), m.settled)
			if err := m.judge(); err != nil {
				rt.Fatalf("end %d, which did %v, its peer %v: %v", m.key, m.acts, m.peer.acts, err)
			}
		}
		sinktest.Eventually(rt, "streams are forgotten", func() bool { return e.server.Streams() == 0 && e.agent.Streams() == 0 })
	})
}
