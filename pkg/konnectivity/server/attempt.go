package server

import (
	"errors"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel"
)

// attempt is a dial through one agent, and afterwards passes on what comes from
// it.
type attempt struct {
	p  *Pending
	b  *Backend
	st tunnel.Stream

	// Guarded by p.mu.
	dialed  bool
	told    bool  // the frontend has the answer
	aborted error // what the frontend is to get behind the answer
}

// drop ends an attempt at the agent.
func (at *attempt) drop() {
	if at == nil {
		return
	}
	at.b.answered(at)
	at.p.mu.Lock()
	st := at.st
	at.p.mu.Unlock()
	if st != nil {
		st.Reset("dial cancelled", false)
	}
}

// retry gives the dial to another agent, if this attempt is still the current one.
func (at *attempt) retry() {
	p := at.p
	if !p.takeBack(at) {
		at.b.answered(at) // nobody waits for the answer any more
		return
	}
	at.moveOn()
}

// moveOn ends an attempt that was taken back and makes the next one.
func (at *attempt) moveOn() {
	at.drop()
	at.p.s.m.redials.Inc()
	at.p.next(false)
}

// pass gives the dial of a silent agent to another one that fits as well. Without one
// the dial waits: the agent may go on, another may come, and the end of the link is
// noticed. The silent one may be asked again, once it answers.
func (at *attempt) pass() {
	p := at.p
	if !p.isCurrent(at) {
		at.b.answered(at) // nobody waits for the answer any more
		return
	}
	others, room := p.triedBut(at.b)
	if !room || !p.s.reg.hasOther(p.address, at.b, others) || !p.takeBack(at) {
		return
	}
	p.mu.Lock()
	p.tried = others
	p.mu.Unlock()
	at.moveOn()
}

// Dialed implements tunnel.Receiver.
func (at *attempt) Dialed(st tunnel.Stream, err error) {
	at.b.answered(at)
	p := at.p
	p.mu.Lock()
	late := p.cur != at || p.done
	if !late && err == nil {
		at.dialed = true
		at.st = st
	}
	p.mu.Unlock()
	if late {
		if st != nil {
			p.s.m.dialFailures.With("unrecognized_response").Inc()
			st.Reset("dial cancelled", false)
		}
		return
	}
	if err == nil {
		at.tell(st)
		return
	}
	var de *tunnel.DialError
	if !errors.As(err, &de) {
		de = &tunnel.DialError{Message: err.Error()}
	}
	if de.Code == tunnel.CodeAgentGone {
		at.retry()
		return
	}
	p.finish(nil, de, "error_response")
}

// tell gives the frontend its stream, and the end of it if that came meanwhile:
// the goroutine that notices the end of the link is another one.
func (at *attempt) tell(st tunnel.Stream) {
	p := at.p
	answered := p.finish(st, nil, "")
	p.mu.Lock()
	at.told = true
	aborted := at.aborted
	p.mu.Unlock()
	if answered && aborted != nil {
		p.user.Aborted(aborted)
	}
}

// Data implements tunnel.Receiver.
func (at *attempt) Data(cs ...*buf.Chunk) { at.p.user.Data(cs...) }

// End implements tunnel.Receiver.
func (at *attempt) End() { at.p.user.End() }

// PeerClosed is called behind End when the destination is closed for good.
func (at *attempt) PeerClosed() {
	if pc, ok := at.p.user.(interface{ PeerClosed() }); ok {
		pc.PeerClosed()
	}
}

// Aborted implements tunnel.Receiver.
func (at *attempt) Aborted(err error) {
	at.p.mu.Lock()
	dialed, told := at.dialed, at.told
	if dialed && !told {
		at.aborted = err
	}
	at.p.mu.Unlock()
	switch {
	case told:
		at.p.user.Aborted(err)
		return
	case dialed:
		return // tell does it
	}
	at.Dialed(nil, &tunnel.DialError{Code: tunnel.CodeAgentGone, Message: err.Error()})
}

// Writable implements tunnel.Receiver.
func (at *attempt) Writable() { at.p.user.Writable() }
