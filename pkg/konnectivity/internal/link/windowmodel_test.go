// SPDX-License-Identifier: Apache-2.0

package link

import (
	"net"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
)

// windowModel is the receiving side of a link, without a peer.
type windowModel struct {
	*rapid.T
	l    *Link
	all  []*Stream
	line bool // the line is long, so windows grow
	out  batch
}

// TestWindowModel lets streams receive, pass on, stall, send BLOCKED and end in random
// order. It checks that no byte of a window, of the link's slack or of the budget is lost
// or counted twice.
func TestWindowModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		m := &windowModel{T: rt, line: rapid.Bool().Draw(rt, "long line")}
		m.l = New(near, 1<<20, Config{Window: 64 << 10, MaxWindow: rapid.SampledFrom([]int{64 << 10, 300_000, 1 << 20}).Draw(rt, "most"),
			Budget: NewBudget(int64(rapid.SampledFrom([]int{0, 300_000, 8 << 20}).Draw(rt, "budget")))})
		if m.line {
			m.l.minRTT.Store(int64(time.Hour))
		}
		for id := range uint32(rapid.IntRange(1, 12).Draw(rt, "streams")) {
			m.all = append(m.all, m.l.newStream(id+1, sinktest.NewSink(nil, false)))
		}
		for range rapid.IntRange(1, 200).Draw(rt, "steps") {
			m.step(rapid.SampledFrom(m.all).Draw(rt, "stream"))
			m.check()
		}
		m.end()
		if m.l.slack != 7*m.l.cfg.Window || len(m.l.loose) > 0 || m.l.cfg.Budget.left.Load() != m.l.cfg.Budget.whole {
			m.Fatalf("%d bytes of slack and %d of the budget are left, %d streams have slack", m.l.slack, m.l.cfg.Budget.left.Load(), len(m.l.loose))
		}
	})
}

// end ends all streams, one after the other or with the link. Some end with everything that
// their windows take.
func (m *windowModel) end() {
	for _, st := range m.all {
		if rapid.Bool().Draw(m.T, "full") {
			m.data(st, st.allowed)
		}
		if rapid.IntRange(0, 3).Draw(m.T, "over before") == 0 {
			st.Reset("", false)
		}
	}
	if rapid.Bool().Draw(m.T, "the link ends") {
		m.l.Close()
	}
	for _, st := range m.all {
		st.Reset("", false)
	}
	m.check()
	for _, st := range m.all {
		st.Consumed(tunnel.All)
	}
	m.check()
}

func (m *windowModel) step(st *Stream) {
	switch rapid.SampledFrom([]string{"busy", "busy", "busy", "data", "data", "pass on", "pass on", "blocked", "blocked", "write", "write", "idle", "end", "reset"}).Draw(m.T, "op") {
	case "data":
		m.data(st, rapid.IntRange(0, max(0, st.allowed)).Draw(m.T, "bytes"))
	case "busy":
		m.data(st, st.allowed)
		st.gotBlocked()
		st.Consumed(st.unconsumed)
		st.gotBlocked()
		m.write()
	case "pass on":
		st.Consumed(rapid.IntRange(0, st.unconsumed).Draw(m.T, "bytes"))
	case "blocked":
		st.gotBlocked()
	case "write":
		m.write()
	case "idle":
		st.lastCredit, st.widened = longAgo, longAgo
	case "end":
		if len(m.all) > 3 && rapid.IntRange(0, 9).Draw(m.T, "indeed") == 0 {
			st.gotFin(false)
		}
	case "reset":
		if len(m.all) > 3 && rapid.IntRange(0, 9).Draw(m.T, "indeed") == 0 {
			st.Reset("", false)
		}
	}
}

// data arrives on a stream.
func (m *windowModel) data(st *Stream, n int) {
	if !st.state.remoteEnded() {
		st.allowed -= n
		st.unconsumed += n
		st.came += n
		m.l.held += n
	}
}

// write sends the credit that is due.
func (m *windowModel) write() {
	m.l.mu.Lock()
	m.l.fill(&m.out)
	m.l.mu.Unlock()
}

func (m *windowModel) check() {
	slack, extra := m.l.slack, 0
	for _, st := range m.all {
		grown := st.window - m.l.cfg.Window
		extra += grown
		if st.state.remoteEnded() {
			if used := max(0, st.unconsumed-m.l.cfg.Window); st.slack > 0 || m.l.err == nil && grown != used {
				m.Fatalf("stream %d is over, holds %d bytes, has slack %d and %d of the budget", st.id, st.unconsumed, st.slack, grown)
			}
		}
		if st.state == stateClosed {
			continue
		}
		slack += st.slack
		if !st.state.remoteEnded() && st.owed >= st.window/4 && !st.creditQueued {
			m.Fatalf("stream %d: no credit is sent for %d bytes", st.id, st.owed)
		}
		if !st.state.remoteEnded() && st.allowed+st.unconsumed+st.owed != st.window {
			m.Fatalf("stream %d: window %d, but %d to come, %d held, %d owed", st.id, st.window, st.allowed, st.unconsumed, st.owed)
		}
		if grown < 0 || st.window > m.l.cfg.MaxWindow {
			m.Fatalf("stream %d: window %d", st.id, st.window)
		}
		if known := st.slack + st.shrink; known > grown || !m.line && !st.state.remoteEnded() && known < grown {
			m.Fatalf("stream %d: grown by %d, with slack %d, and is to shrink by %d", st.id, grown, st.slack, st.shrink)
		}
	}
	if slack != 7*m.l.cfg.Window || m.l.slack < 0 {
		m.Fatalf("slack of %d in all, %d left", slack, m.l.slack)
	}
	b := m.l.cfg.Budget
	if left := b.left.Load(); left != b.whole-int64(extra) || left < 0 || !m.line && left < b.whole/2 {
		m.Fatalf("%d of the budget's %d are left, windows have %d of it", left, b.whole, extra)
	}
}
