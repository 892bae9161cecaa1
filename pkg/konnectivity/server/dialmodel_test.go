// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
)

// front is a frontend of TestDialModel with the answers that it got.
type front struct {
	number   int
	p        *Pending
	start    time.Time
	canceled bool
	hungUp   bool // it has closed its connection, or noticed its end
	judged   bool // its answer was checked
	at       *attempt
	since    time.Time // when at was first seen

	mu       sync.Mutex
	answers  int
	err      *tunnel.DialError
	answered time.Time
	st       tunnel.Stream
	ended    int // calls of Aborted
}

func (f *front) Dialed(st tunnel.Stream, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers++
	f.st, f.answered = st, time.Now()
	_ = errors.As(err, &f.err)
}

func (f *front) Aborted(error) {
	f.mu.Lock()
	f.ended++
	f.mu.Unlock()
}

func (f *front) Data(cs ...*buffer.Chunk) { buffer.Release(cs) }
func (f *front) End()                     {}
func (f *front) Writable()                {}

// dialModel is a server, its agents and its frontends.
type dialModel struct {
	*rapid.T
	s      *Server
	agents []*modelAgent
	fronts []*front
	begun  time.Time
	lost   time.Time // when an agent that the server must have known went away
}

// TestDialModel lets agents connect, disconnect, drain, freeze, accept and refuse, and
// frontends dial and disconnect, in random order. It checks that each dial gets one
// answer, in time, which is what an agent answered, or that there was no agent. A dial
// never waits for an agent that has gone, nor for long for a frozen agent while another
// answers. Nothing of a dial is left when it is done.
func TestDialModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var failure any
		synctest.Test(t, func(*testing.T) { // one bubble for each schedule: its time has advanced at the end
			defer func() { failure = recover() }()
			wait := time.Duration(rapid.SampledFrom([]int{0, 10, 60}).Draw(rt, "wait for agents, s")) * time.Second
			m := &dialModel{T: rt, s: New(Config{AgentWait: wait}, NewMetrics()), begun: time.Now()}
			defer m.close()
			m.run()
		})
		if failure != nil {
			panic(failure) // rapid expects it on its own goroutine
		}
	})
}

func (m *dialModel) run() {
	for range rapid.IntRange(1, 60).Draw(m.T, "steps") {
		m.step()
		synctest.Wait()
		m.check()
	}
	time.Sleep(m.s.cfg.DialTimeout + time.Second)
	synctest.Wait()
	m.check()
	for _, f := range m.fronts {
		if f.pending() {
			m.Fatalf("dial %d has no answer", f.number)
		}
		m.hangUp(f)
	}
	synctest.Wait()
	m.check()
	if n := m.s.Established(); n != 0 {
		m.Fatalf("%d connections are left", n)
	}
}

// close ends all goroutines, also after a failure.
func (m *dialModel) close() {
	for _, a := range m.agents {
		a.gate.set(false)
		_ = a.gate.Close()
		a.end()
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	m.s.Shutdown(ctx)
	synctest.Wait()
}

// step performs one operation.
func (m *dialModel) step() {
	op := rapid.SampledFrom([]string{"come", "go", "drain", "freeze", "thaw", "dial", "dial", "dial",
		"answer", "answer", "answer", "cancel", "hang up", "sleep", "sleep"}).Draw(m.T, "op")
	switch op {
	case "come":
		m.come()
	case "go", "drain", "freeze", "thaw":
		if len(m.agents) > 0 {
			m.agentDoes(op, rapid.SampledFrom(m.agents).Draw(m.T, "agent"))
		}
	case "dial":
		m.dial()
	case "answer":
		if asks := m.asks(false); len(asks) > 0 {
			rapid.SampledFrom(asks).Draw(m.T, "ask").answer(rapid.Bool().Draw(m.T, "accept"))
		}
	case "cancel":
		if f := m.any(func(f *front) bool { return f.pending() }); f != nil {
			f.canceled = true
			f.p.Cancel()
		}
	case "hang up":
		if f := m.any(func(f *front) bool { return f.alive() }); f != nil {
			m.hangUp(f)
		}
	case "sleep":
		time.Sleep(time.Duration(rapid.SampledFrom([]int{10, 300, 1000, 3000, 12_000, 40_000}).Draw(m.T, "ms")) * time.Millisecond)
	}
}

func (m *dialModel) come() {
	id := agentID(len(m.agents))
	if rapid.Bool().Draw(m.T, "upstream") {
		m.agents = append(m.agents, m.s.upstreamAgent(id))
	} else {
		m.agents = append(m.agents, m.s.linkAgent(id))
	}
}

func (m *dialModel) agentDoes(op string, a *modelAgent) {
	switch op {
	case "go":
		if !a.drains && !a.isOver() && !a.gate.isShut() {
			m.lost = time.Now()
		}
		_ = a.gate.Close()
		a.end()
	case "drain":
		a.leaves = true
		a.drains = a.drains || !a.gate.isShut() // a frozen agent sends DRAIN when it thaws
		go a.drain()
	default:
		a.gate.set(op == "freeze")
		a.good = time.Now()
		a.drains = a.drains || a.leaves && op == "thaw"
	}
}

func (m *dialModel) dial() {
	f := &front{number: len(m.fronts) + 1, start: time.Now()}
	m.fronts = append(m.fronts, f)
	done := make(chan *Pending, 1)
	go func() { done <- m.s.Dial(addressOf(f.number), f) }() // Dial may write to an agent that does not read
	synctest.Wait()
	select {
	case f.p = <-done:
	default:
		m.Fatalf("dial %d waits", f.number)
	}
}

// asks returns the asks at agents that can act.
func (m *dialModel) asks(answered bool) (asks []*ask) {
	for _, a := range m.agents {
		if !a.gate.isShut() && !a.isOver() {
			asks = append(asks, a.open(answered)...)
		}
	}
	return asks
}

func (m *dialModel) any(want func(*front) bool) *front {
	fs := slices.DeleteFunc(slices.Clone(m.fronts), func(f *front) bool { return !want(f) })
	if len(fs) == 0 {
		return nil
	}
	return rapid.SampledFrom(fs).Draw(m.T, "front")
}

func (f *front) pending() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answers == 0 && !f.canceled
}

// alive reports whether the frontend has a connection.
func (f *front) alive() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.st != nil && f.ended == 0 && !f.hungUp
}

// hangUp closes a connection as frontends do.
func (m *dialModel) hangUp(f *front) {
	if f.st != nil && !f.hungUp {
		f.hungUp = true
		f.st.Reset("by the frontend", false)
		m.s.endConn()
	}
}
