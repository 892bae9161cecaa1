// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/trace"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

// Pending is a dial for a frontend. It may go through several agents; the
// frontend sees one answer.
type Pending struct {
	s       *Server
	address string
	agent   *state.Agent // that the dial must go through; nil for any
	user    tunnel.Receiver
	start   time.Time
	serial  int64 // tells connections apart, see Server.Connections
	timer   *time.Timer
	span    *trace.Span
	trace   traceparent.Context // what agents get as the parent of their spans

	mu         sync.Mutex
	cur        *attempt
	tried      []*Backend
	notReading *Backend // one of the tried agents, which does not read its dials
	done       bool
	over       chan struct{} // closed when done is set; nil if no goroutine waits for it
}

// maxTries is the number of agents that are asked before a dial fails because
// agents go away or do not answer. It does not count in the first quickTries,
// when many agents may be found gone at once.
const (
	maxTries   = 8
	quickTries = 2 * time.Second
)

// maxAddress bounds the address of a dial in bytes: no host name is longer than
// 255, and an agent ends its link over a frame that is larger than it takes.
const maxAddress = 1024

// checkAddress refuses an address that no agent would accept. An upstream agent, for
// example, ends its stream, with all connections on it, when text is not UTF-8.
func checkAddress(address string) error {
	if n := len(address); n > maxAddress {
		return fmt.Errorf("address has %d bytes, a dial takes up to %d", n, maxAddress)
	}
	if strings.Contains(address, "\x00") {
		return fmt.Errorf("address %q has a zero byte", address)
	}
	if !utf8.ValidString(address) {
		return fmt.Errorf("address %q is not UTF-8", address)
	}
	return nil
}

// Dial connects user to an address through an agent. It delivers the answer by
// user.Dialed, which it may call before it returns.
func (s *Server) Dial(address string, user tunnel.Receiver) *Pending {
	return s.DialTraced(address, user, traceparent.Context{})
}

// DialTraced is Dial for a frontend that has sent a trace context.
func (s *Server) DialTraced(address string, user tunnel.Receiver, parent traceparent.Context) *Pending {
	return s.dialThrough(nil, address, user, parent)
}

// dialThrough is DialTraced through one agent, or through any if that is nil.
func (s *Server) dialThrough(agent *state.Agent, address string, user tunnel.Receiver, parent traceparent.Context) *Pending {
	p := &Pending{s: s, address: address, agent: agent, user: user, start: time.Now(), serial: s.serial.Add(1)}
	p.span, p.trace = s.cfg.Tracer.Start(parent, "konnectivity-server dial", trace.Server)
	p.span.Set("address", address)
	if reason, err := s.beginDial(address); err != nil {
		p.done = true
		p.span.End(err.Message)
		s.countFailure(reason, err.Code)
		user.Dialed(nil, err)
		return p
	}
	p.mu.Lock()
	p.timer = time.AfterFunc(s.cfg.DialTimeout, p.timeout)
	p.mu.Unlock()
	p.next(true)
	return p
}

// beginDial counts a dial. If the dial may not begin, it returns the error and the
// reason label for the metric.
func (s *Server) beginDial(address string) (reason string, err *tunnel.DialError) {
	if err := checkAddress(address); err != nil {
		return "bad_address", tunnel.Errorf(tunnel.CodeOther, "%v", err)
	}
	if !s.m.pendingDials.IncBelow(s.cfg.MaxPending) {
		return "no_agent", tunnel.Errorf(tunnel.CodeLimit, "server has %d dials pending, its limit", s.cfg.MaxPending)
	}
	if !s.carried.IncBelow(s.cfg.MaxConns) {
		s.m.pendingDials.Dec()
		return "no_agent", tunnel.Errorf(tunnel.CodeLimit, "server has %d connections and dials, its limit", s.cfg.MaxConns)
	}
	return "", nil
}

// failDial removes a dial that ended without a connection from the counts.
func (s *Server) failDial(reason string, code tunnel.Code) {
	s.m.pendingDials.Dec()
	s.carried.Dec()
	s.countFailure(reason, code)
}

// endConn removes a connection from the counts.
func (s *Server) endConn() {
	s.m.established.Dec()
	s.carried.Dec()
}

// next tries the next agent. mayWait has the meaning that it has in tunnel.Stream.Send.
func (p *Pending) next(mayWait bool) {
	for {
		b := p.pick()
		if b == nil {
			if p.none() {
				continue
			}
			return
		}
		at := &attempt{p: p, b: b}
		p.mu.Lock()
		if p.done {
			p.mu.Unlock()
			return
		}
		p.cur = at
		p.tried = append(p.tried, b)
		p.mu.Unlock()
		st, err := b.dial(p.address, p.trace, at, mayWait)
		if err != nil {
			if !p.takeBack(at) {
				return // the closing link has already passed the dial on
			}
			switch {
			case errors.Is(err, tunnel.ErrFull):
				p.untry(b) // it may be tried again when it is no longer full
			case errors.Is(err, tunnel.ErrNotReading):
				p.mu.Lock()
				p.notReading = b
				p.mu.Unlock()
			}
			continue
		}
		p.mu.Lock()
		at.st = st
		stale := p.done && !at.dialed
		p.mu.Unlock()
		if stale {
			st.Reset("dial canceled", false)
		}
		return
	}
}

// none handles a dial for which there is no agent now: the dial waits for one, or it
// fails. again reports that there is an agent after all.
func (p *Pending) none() (again bool) {
	p.mu.Lock()
	tried, notReading := p.tried, p.notReading
	p.mu.Unlock()
	if b := p.full(tried); b != nil {
		p.finish(nil, tunnel.Errorf(tunnel.CodeLimit, "agent %q has %d connections and dials, the server's limit for one agent", b.agentID, b.most), "no_agent")
		return false
	}
	if notReading != nil {
		p.finish(nil, tunnel.Errorf(tunnel.CodeLimit, "agent %q does not read, and many dials wait for it already", notReading.agentID), "no_agent")
		return false
	}
	asked := p.asked()
	switch {
	case p.agent == nil && p.s.awaitAgent(p): // next is called when an agent comes
	case p.pick() != nil: // it was full a moment ago
		return true
	case asked:
		p.finish(nil, tunnel.Errorf(tunnel.CodeAgentGone, "the agent went away during the dial"), "backend_close")
	case p.agent != nil:
		p.finish(nil, tunnel.Errorf(tunnel.CodeNoAgent, "agent %q has no link to this server", p.agent.ID), "no_agent")
	default:
		p.finish(nil, tunnel.Errorf(tunnel.CodeNoAgent, "No agent available"), "no_agent")
	}
	return false
}

// untry removes an agent from those tried, because the dial was not sent to it.
func (p *Pending) untry(b *Backend) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tried = slices.DeleteFunc(slices.Clone(p.tried), func(t *Backend) bool { return t == b })
}

// takeBack ends the current attempt. It returns false when at is no longer the current
// one. Only the caller that ended the attempt continues the dial: if two did, each
// would treat the other's answer as a late one.
func (p *Pending) takeBack(at *attempt) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	current := p.cur == at && !p.done && !at.dialed
	if current {
		p.cur = nil
	}
	return current
}

// isCurrent reports whether the dial waits for this attempt.
func (p *Pending) isCurrent(at *attempt) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cur == at && !p.done && !at.dialed
}

func (p *Pending) pick() *Backend {
	p.mu.Lock()
	tried := p.tried
	p.mu.Unlock()
	if !p.mayTry(len(tried)) {
		return nil
	}
	if p.agent != nil {
		return p.s.reg.through(*p.agent, tried)
	}
	if b, own := p.s.pickLocal(p.address, tried); own {
		return b
	}
	return p.s.reg.choose(p.address, tried)
}

// mayTry reports whether another agent may be tried after n.
func (p *Pending) mayTry(n int) bool {
	return n < maxTries || time.Since(p.start) <= quickTries
}

// triedBut returns the agents that were tried, except b, and reports whether another
// may be tried.
func (p *Pending) triedBut(b *Backend) (others []*Backend, mayTry bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.tried {
		if o != b {
			others = append(others, o)
		}
	}
	return others, p.mayTry(len(others))
}

// asked reports whether the dial was sent to an agent.
func (p *Pending) asked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cur != nil || len(p.tried) > 0
}

// forgetGone removes agents that are no longer connected from those tried, so that they
// do not count against maxTries. It returns how many remain.
func (p *Pending) forgetGone() int {
	p.mu.Lock()
	tried := p.tried
	p.mu.Unlock()
	kept := p.s.reg.present(tried)
	p.mu.Lock()
	p.tried = kept
	p.mu.Unlock()
	return len(kept)
}

// endLocked marks the dial as done.
func (p *Pending) endLocked() {
	p.done = true
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.over != nil {
		close(p.over)
	}
}

// overChan returns a channel that is closed when the dial is done, or nil if it is done
// already.
func (p *Pending) overChan() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return nil
	}
	if p.over == nil {
		p.over = make(chan struct{})
	}
	return p.over
}

// finish answers the frontend once.
func (p *Pending) finish(st tunnel.Stream, err *tunnel.DialError, reason string) bool {
	p.mu.Lock()
	if p.done {
		p.mu.Unlock()
		return false
	}
	p.endLocked()
	if p.cur != nil {
		p.span.Set("agent", p.cur.b.agentID)
	}
	p.mu.Unlock()
	if err != nil {
		p.span.End(err.Message)
		p.s.failDial(reason, err.Code)
		p.user.Dialed(nil, err)
		return true
	}
	p.span.End("")
	p.s.m.pendingDials.Dec()
	p.s.m.established.Inc()
	p.s.m.dialSeconds.Observe(time.Since(p.start).Seconds())
	p.user.Dialed(st, nil)
	return true
}

func (s *Server) countFailure(reason string, code tunnel.Code) {
	s.m.dialFailures.With(reason).Inc()
	s.m.dialErrors.With(code.String()).Inc()
}

// Cancel cancels a dial whose frontend no longer waits for it. The frontend gets no
// answer afterwards. If it got one before, it must end the stream itself.
func (p *Pending) Cancel() {
	p.mu.Lock()
	if p.done {
		p.mu.Unlock()
		return
	}
	p.endLocked()
	at := p.cur
	p.mu.Unlock()
	p.span.End("client gave up")
	p.s.failDial("frontend_close", tunnel.CodeOther)
	at.drop()
}

func (p *Pending) timeout() {
	p.mu.Lock()
	at := p.cur
	p.mu.Unlock()
	if p.finish(nil, tunnel.Errorf(tunnel.CodeTimeout, "timed out waiting for backend dial"), "backend_dial_timeout") {
		at.drop()
	}
}
