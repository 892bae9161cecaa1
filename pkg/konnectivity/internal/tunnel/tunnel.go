// SPDX-License-Identifier: Apache-2.0

// Package tunnel says what servers and agents may expect of a link, whichever
// protocol it speaks: our own (package link) or upstream's protocol.
package tunnel

import (
	"errors"
	"fmt"
	"math"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
)

// Stream is one tunneled connection as its local user sees it. None of the
// methods waits, except Send with mayWait.
type Stream interface {
	// Window is the number of bytes that may be sent now. When it is 0, the
	// receiver's Writable is called once it is not.
	Window() int
	// Send queues the chunk, which it owns from then on. With mayWait the
	// caller may be used to write the shared connection; a goroutine that reads
	// a shared connection must not allow that.
	Send(c *buffer.Chunk, mayWait bool)
	// SendAll queues several chunks, which it owns from then on, as Send does.
	SendAll(cs []*buffer.Chunk, mayWait bool)
	// Consumed says that n bytes given to the receiver have been passed on, or
	// dropped. More than it was given is all of that.
	Consumed(n int)
	// CloseWrite ends the sending direction behind what was sent.
	CloseWrite()
	// Close does the same and says that nothing more will be read.
	Close()
	// Reset ends both directions. With ordered, what was sent before arrives.
	Reset(reason string, ordered bool)
}

// Receiver is the local end of a Stream. Its methods are called by the goroutine
// that reads the link, one at a time except Writable, and must not wait.
type Receiver interface {
	// Dialed says whether the other side could connect; dialing side only.
	Dialed(st Stream, err error)
	// Data passes on chunks, which the receiver owns from then on. The slice stays
	// the caller's.
	Data(cs ...*buffer.Chunk)
	// End says that the other side sends no more.
	End()
	// Aborted is the last call on a stream that did not end in an orderly way.
	Aborted(err error)
	// Writable says that Window is greater than 0 again.
	Writable()
}

// Code tells kinds of failed dials apart.
type Code byte

// Kinds of failed dials.
const (
	CodeOther     Code = iota
	CodeRefused        // the destination refused the connection
	CodeTimeout        // no answer in time
	CodeNoRoute        // no route, network or host unreachable
	CodeDNS            // the name does not resolve
	CodeDenied         // the agent's rules forbid the destination
	CodeLimit          // a limit or lack of descriptors
	CodeNoAgent        // no agent is connected
	CodeAgentGone      // the agent went away while it was dialing
)

var codeNames = [...]string{"other", "refused", "timeout", "no_route", "dns", "denied", "limit", "no_agent", "agent_gone"}

func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return "other"
}

// DialError says why a dial failed.
type DialError struct {
	Code    Code
	Message string
}

func (e *DialError) Error() string { return e.Message }

// Errorf makes a DialError.
func Errorf(code Code, format string, args ...any) *DialError {
	return &DialError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// All is an argument for Stream.Consumed: the receiver holds nothing any more.
const All = math.MaxInt

// ErrEvicted says that the receiver lagged and the memory is needed: it has to
// drop what it holds.
var ErrEvicted = errors.New("receiver is too slow, and what it has not read takes more memory than may be used")

// ErrLinkClosed says that the link between server and agent ended.
var ErrLinkClosed = errors.New("the link between server and agent is closed")

// ErrFull says that a link has as many connections as it may have.
var ErrFull = errors.New("the link between server and agent has as many connections as it may have")

// ErrNotReading says that so many dials wait for being sent on a link that its agent
// cannot be reading.
var ErrNotReading = errors.New("the agent does not read its dials")

// ResetError is a reset by the other side.
type ResetError struct{ Reason string }

func (e *ResetError) Error() string { return e.Reason }
