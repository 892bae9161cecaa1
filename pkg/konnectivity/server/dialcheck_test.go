// SPDX-License-Identifier: Apache-2.0

package server

import (
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
)

// patienceWithFrozen is how long a dial may wait for a frozen agent while another
// answers: until the overdue ping was sent, and two seconds more.
const patienceWithFrozen = 12 * time.Second

// check compares the server with the model while no event is in progress.
func (m *dialModel) check() {
	pending, alive := 0, 0
	for _, f := range m.fronts {
		m.checkFront(f)
		if f.pending() {
			pending++
			m.checkPending(f)
		}
		if f.st != nil && f.ended > 0 {
			m.hangUp(f) // as frontends do when their connection ends
		}
		if f.alive() {
			alive++
		}
	}
	if n := m.s.m.pendingDials.Get(); int(n) != pending {
		m.Fatalf("%d dials are pending, want %d", n, pending)
	}
	if n := m.s.Established(); int(n) != pending+alive {
		m.Fatalf("%d dials and connections, want %d and %d", n, pending, alive)
	}
	for _, b := range m.s.reg.list() {
		for _, at := range b.overdue(-1) {
			if !at.p.isCurrent(at) {
				m.Fatalf("an agent is thought to owe an answer to %s, whose dial is over", at.p.address)
			}
		}
	}
	m.checkAsks()
}

// checkFront checks the answer that a frontend got.
func (m *dialModel) checkFront(f *front) {
	f.mu.Lock()
	defer f.mu.Unlock()
	took := f.answered.Sub(f.start)
	switch {
	case f.answers > 1 || f.ended > 1:
		m.Fatalf("dial %d has %d answers and %d ends", f.number, f.answers, f.ended)
	case f.answers == 1 && f.canceled:
		m.Fatalf("dial %d has an answer though it was canceled", f.number)
	case f.answers == 0 || f.judged:
		return
	case f.err == nil && f.st == nil:
		m.Fatalf("dial %d has succeeded without a connection", f.number)
	case f.err == nil:
		if !m.said(f.number, true) {
			m.Fatalf("dial %d has succeeded, which no agent said", f.number)
		}
	default:
		m.checkFailure(f, took)
	}
	f.judged = true
}

// checkFailure checks that the failure of a dial has a cause in the model.
func (m *dialModel) checkFailure(f *front, took time.Duration) {
	switch code := f.err.Code; code {
	case tunnel.CodeRefused, tunnel.CodeOther: // upstream's protocol has no codes
		if !m.said(f.number, false) {
			m.Fatalf("dial %d: %v, which no agent said", f.number, f.err)
		}
	case tunnel.CodeTimeout:
		if took != m.s.cfg.DialTimeout {
			m.Fatalf("dial %d timed out after %v", f.number, took)
		}
	case tunnel.CodeNoAgent, tunnel.CodeAgentGone:
		n := len(m.s.reg.list())
		if hope := n > 0 || justBefore(m.begun, f.answered) || justBefore(m.lost, f.answered); hope && took < m.s.cfg.AgentWait {
			m.Fatalf("dial %d: %v after %v, with %d agents", f.number, f.err, took, n)
		}
	default:
		m.Fatalf("dial %d: %v (%v)", f.number, f.err, code)
	}
}

// justBefore reports whether an event is recent enough that dials wait for agents
// because of it.
func justBefore(what, when time.Time) bool {
	return !what.IsZero() && !what.After(when) && when.Sub(what) < 30*time.Second
}

// said reports whether an agent has answered a dial in this way.
func (m *dialModel) said(number int, accepted bool) bool {
	for _, a := range m.agents {
		for _, k := range a.asked {
			if k.number == number && k.answered && k.accepted == accepted {
				return true
			}
		}
	}
	return false
}

// checkPending checks that a pending dial waits for an agent that may answer.
func (m *dialModel) checkPending(f *front) {
	f.p.mu.Lock()
	at, tries := f.p.cur, len(f.p.tried)
	f.p.mu.Unlock()
	if at != f.at {
		f.at, f.since = at, time.Now()
		if a := m.agentOf(at); a != nil && a.drains && m.other(a) {
			m.Fatalf("dial %d goes to an agent that leaves", f.number)
		}
	}
	if time.Since(f.start) > m.s.cfg.DialTimeout {
		m.Fatalf("dial %d has no answer after %v", f.number, time.Since(f.start))
	}
	if at == nil {
		if n := len(m.s.reg.list()); n > 0 && f.p.mayTry(tries) {
			m.Fatalf("dial %d asks none of %d agents", f.number, n)
		}
		return
	}
	if len(m.s.reg.present([]*Backend{at.b})) == 0 {
		m.Fatalf("dial %d waits for an agent that is gone", f.number)
	}
	if a := m.agentOf(at); a != nil && a.gate.isShut() && time.Since(f.since) > patienceWithFrozen && time.Since(a.good) > patienceWithFrozen && m.other(a) {
		m.Fatalf("dial %d waits for a frozen agent since %v", f.number, time.Since(f.since))
	}
}

// agentOf returns the agent of an attempt.
func (m *dialModel) agentOf(at *attempt) *modelAgent {
	for i, a := range m.agents {
		if at != nil && at.b.agentID == agentID(i) {
			return a
		}
	}
	return nil
}

// other reports whether another agent has been answering long enough and is not
// draining.
func (m *dialModel) other(than *modelAgent) bool {
	for _, a := range m.agents {
		if a != than && !a.drains && !a.isOver() && !a.gate.isShut() && time.Since(a.good) > patienceWithFrozen {
			return true
		}
	}
	return false
}

// checkAsks checks that agents that listen know only the dials and connections that
// exist.
func (m *dialModel) checkAsks() {
	live := map[int]int{}
	for _, a := range m.asks(false) {
		if f := m.fronts[a.number-1]; !f.pending() {
			m.Fatalf("an agent still dials %d, which is over", a.number)
		}
		live[a.number]++
	}
	for _, a := range m.asks(true) {
		if f := m.fronts[a.number-1]; !f.alive() {
			m.Fatalf("an agent still has connection %d, which is over", a.number)
		}
		live[a.number]++
	}
	for number, n := range live {
		if n > 1 {
			m.Fatalf("%d agents have dial %d", n, number)
		}
	}
}
