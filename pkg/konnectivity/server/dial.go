package server

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel"
)

// Pending is a dial for a frontend. It may go through several agents; the
// frontend sees one answer.
type Pending struct {
	s       *Server
	address string
	user    tunnel.Receiver
	start   time.Time
	timer   *time.Timer

	mu    sync.Mutex
	cur   *attempt
	tried []*Backend
	deaf  *Backend // one of those tried, which does not read its dials
	done  bool
	over  chan struct{} // closed with done; nil where nobody waits for that
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

// checkAddress refuses what no agent would take: one of the reference protocol ends its
// stream, with all connections on it, over text that is not UTF-8.
func checkAddress(address string) error {
	if n := len(address); n > maxAddress {
		return fmt.Errorf("address has %d bytes, a dial takes up to %d", n, maxAddress)
	}
	if !utf8.ValidString(address) {
		return fmt.Errorf("address %q is not UTF-8", address)
	}
	return nil
}

// Dial connects user to an address through an agent. The answer comes by
// user.Dialed, which may be called before Dial returns.
func (s *Server) Dial(address string, user tunnel.Receiver) *Pending {
	p := &Pending{s: s, address: address, user: user, start: time.Now()}
	if reason, err := s.beginDial(address); err != nil {
		p.done = true
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

// beginDial counts a dial, unless it may not begin: then it says why, and the reason for
// the metric.
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

// failDial counts a dial off that is over without a connection.
func (s *Server) failDial(reason string, code tunnel.Code) {
	s.m.pendingDials.Dec()
	s.carried.Dec()
	s.countFailure(reason, code)
}

// endConn counts a connection off.
func (s *Server) endConn() {
	s.m.established.Dec()
	s.carried.Dec()
}

// next tries the next agent. mayWait is as in tunnel.Stream.Send.
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
		st, err := b.dial(p.address, at, mayWait)
		if err != nil {
			if !p.takeBack(at) {
				return // the link's end has given the dial to somebody else
			}
			switch {
			case errors.Is(err, tunnel.ErrFull):
				p.untry(b) // and may be asked when it is not
			case errors.Is(err, tunnel.ErrNotReading):
				p.mu.Lock()
				p.deaf = b
				p.mu.Unlock()
			}
			continue
		}
		p.mu.Lock()
		at.st = st
		stale := p.done && !at.dialed
		p.mu.Unlock()
		if stale {
			st.Reset("dial cancelled", false)
		}
		return
	}
}

// none goes on with a dial for which there is no agent now: it waits for one or fails.
// again says that there is one after all.
func (p *Pending) none() (again bool) {
	p.mu.Lock()
	tried, deaf := p.tried, p.deaf
	p.mu.Unlock()
	if b := p.s.reg.full(p.address, tried); b != nil {
		p.finish(nil, tunnel.Errorf(tunnel.CodeLimit, "agent %q has %d connections and dials, the server's limit for one agent", b.agentID, b.most), "no_agent")
		return false
	}
	if deaf != nil {
		p.finish(nil, tunnel.Errorf(tunnel.CodeLimit, "agent %q does not read, and many dials wait for it already", deaf.agentID), "no_agent")
		return false
	}
	asked := p.asked()
	switch {
	case p.s.awaitAgent(p): // next is called when an agent comes
	case p.pick() != nil: // it was full a moment ago
		return true
	case asked:
		p.finish(nil, tunnel.Errorf(tunnel.CodeAgentGone, "the agent went away during the dial"), "backend_close")
	default:
		p.finish(nil, tunnel.Errorf(tunnel.CodeNoAgent, "No agent available"), "no_agent")
	}
	return false
}

// untry forgets that an agent was asked: it was not.
func (p *Pending) untry(b *Backend) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tried = slices.DeleteFunc(slices.Clone(p.tried), func(t *Backend) bool { return t == b })
}

// takeBack ends the current attempt; false when it is not the current one any more.
// Whoever ends it goes on with the dial, and nobody else: two would take each
// other's answers for late ones.
func (p *Pending) takeBack(at *attempt) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	current := p.cur == at && !p.done && !at.dialed
	if current {
		p.cur = nil
	}
	return current
}

// isCurrent tells whether the dial waits for this attempt.
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
	return p.s.reg.choose(p.address, tried)
}

// mayTry tells whether one agent more may be asked after n.
func (p *Pending) mayTry(n int) bool {
	return n < maxTries || time.Since(p.start) <= quickTries
}

// triedBut returns the agents that were tried without one of them, and whether another
// may be.
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

// asked tells whether an agent was asked.
func (p *Pending) asked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cur != nil || len(p.tried) > 0
}

// forgetGone drops agents that are not connected any more from those that were
// tried, so that they do not count against maxTries. It returns how many remain.
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

// endLocked notes that the dial is over.
func (p *Pending) endLocked() {
	p.done = true
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.over != nil {
		close(p.over)
	}
}

// overChan is closed when the dial is over, or nil if it is already.
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
	p.mu.Unlock()
	if err != nil {
		p.s.failDial(reason, err.Code)
		p.user.Dialed(nil, err)
		return true
	}
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

// Cancel ends a dial that nobody waits for any more. The frontend gets no answer
// after it, and must end the stream itself if it got one before.
func (p *Pending) Cancel() {
	p.mu.Lock()
	if p.done {
		p.mu.Unlock()
		return
	}
	p.endLocked()
	at := p.cur
	p.mu.Unlock()
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
