// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
)

// attempt is a dial through one agent. Afterwards it passes on what the agent sends.
type attempt struct {
	p  *Pending
	b  *Backend
	st tunnel.Stream
	// moved counts the bytes of the connection.
	moved tally
	// since is when dialed was set, in nanoseconds of Unix time. It is read without p.mu.
	since atomic.Int64

	// Guarded by p.mu.
	dialed  bool
	told    bool  // the frontend has the answer
	aborted error // the error that the frontend gets after the answer
}

// drop cancels the attempt at its agent.
func (at *attempt) drop() {
	if at == nil {
		return
	}
	at.b.answered(at)
	at.p.mu.Lock()
	st := at.st
	at.p.mu.Unlock()
	if st != nil {
		st.Reset("dial canceled", false)
	}
}

// retry sends the dial to another agent, if this attempt is still the current one.
func (at *attempt) retry() {
	p := at.p
	if !p.takeBack(at) {
		at.b.answered(at) // the dial no longer waits for this answer
		return
	}
	at.moveOn()
}

// moveOn drops an attempt that was taken back and starts the next one.
func (at *attempt) moveOn() {
	at.drop()
	at.p.s.m.redials.Inc()
	at.p.next(false)
}

// pass moves the dial from an agent that does not answer to another agent that fits
// as well. If there is none, the dial keeps waiting: the agent may answer, another
// agent may connect, or the link may be found closed. Once the silent agent answers,
// the dial may be sent to it again.
func (at *attempt) pass() {
	p := at.p
	if !p.isCurrent(at) {
		at.b.answered(at) // the dial no longer waits for this answer
		return
	}
	others, room := p.triedBut(at.b)
	if !room || !p.hasOther(at.b, others) || !p.takeBack(at) {
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
		at.since.Store(time.Now().UnixNano())
		at.st = st
	}
	p.mu.Unlock()
	if late {
		if st != nil {
			p.s.m.dialFailures.With("unrecognized_response").Inc()
			st.Reset("dial canceled", false)
		}
		return
	}
	if err == nil {
		at.tell(&countedStream{st, at})
		return
	}
	at.b.tally.failures.Add(1)
	var de *tunnel.DialError
	if !errors.As(err, &de) {
		de = &tunnel.DialError{Message: err.Error()}
	}
	if de.Message == "" { // which clients of gRPC take for success
		de = &tunnel.DialError{Code: de.Code, Message: "the agent gives no reason"}
	}
	if de.Code == tunnel.CodeAgentGone {
		at.retry()
		return
	}
	p.finish(nil, de, "error_response")
}

// tell gives the frontend its stream. It also reports an abort that came meanwhile,
// because another goroutine notices the end of the link.
func (at *attempt) tell(st tunnel.Stream) {
	p := at.p
	answered := p.finish(st, nil, "")
	p.mu.Lock()
	at.told = true
	aborted := at.aborted
	p.mu.Unlock()
	switch {
	case !answered: // canceled meanwhile: before the link hands on data, which the frontend has no stream for
		p.s.m.dialFailures.With("unrecognized_response").Inc()
		st.Reset("dial canceled", false)
	case aborted != nil:
		p.user.Aborted(aborted)
	}
}

// Data implements tunnel.Receiver.
func (at *attempt) Data(cs ...*buffer.Chunk) {
	at.received(sizeOf(cs))
	at.p.user.Data(cs...)
}

// End implements tunnel.Receiver.
func (at *attempt) End() { at.p.user.End() }

// PeerClosed is called after End when the destination has closed the connection in
// both directions.
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
