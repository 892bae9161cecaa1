// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
)

// Dialed implements tunnel.Receiver.
func (e *End) Dialed(st tunnel.Stream, err error) {
	if st != nil {
		e.Start(st)
	}
	if e.OnDialed != nil {
		e.OnDialed(st, err)
	}
}

// Data implements tunnel.Receiver.
func (e *End) Data(cs ...*buffer.Chunk) {
	e.mu.Lock()
	if e.first == firstAwaited {
		e.first = firstPassed
		if e.cfg.FirstData != nil && e.cfg.FirstData() {
			e.first = firstHeld
		}
	}
	if e.first == firstHeld {
		for _, c := range cs {
			e.held = buffer.Enqueue(e.held, c)
		}
		e.mu.Unlock()
		return
	}
	e.mu.Unlock()
	e.write(cs)
}

// write passes chunks on to the socket. One that does not take them holds nothing.
func (e *End) write(cs []*buffer.Chunk) {
	if err := e.out.WriteChunks(cs); err != nil {
		e.settle()
	}
}

// Open ends the hold that FirstData asked for.
func (e *End) Open() {
	for {
		e.mu.Lock()
		if len(e.held) == 0 {
			if e.first == firstHeld {
				e.first = firstPassed
			}
			linkEnd, cut := e.linkEnd, e.cut
			e.mu.Unlock()
			if cut != nil {
				e.finish(cut, true)
			} else if linkEnd {
				e.ended()
			}
			return
		}
		held := e.held
		e.held = nil
		e.mu.Unlock()
		e.write(held)
	}
}

// End implements tunnel.Receiver.
func (e *End) End() {
	e.mu.Lock()
	if e.first == firstHeld {
		e.linkEnd = true
		e.mu.Unlock()
		return
	}
	e.mu.Unlock()
	e.ended()
}

func (e *End) ended() { e.halfClosed(true) }

// PeerClosed is called behind End when the other side reads nothing any more.
// The socket stays until its far end has had time to read and close; what that
// still sends is read and dropped.
func (e *End) PeerClosed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.peerClosed = true
	e.idleFor = e.cfg.Linger
	e.watch(e.cfg.Linger)
	e.signal()
}

// Aborted implements tunnel.Receiver.
func (e *End) Aborted(err error) {
	var re *tunnel.ResetError
	if errors.As(err, &re) {
		// Bytes that came before the reset are delivered, as TCP does with
		// what is in the receive queue.
		e.mu.Lock()
		e.cut, e.peerClosed = err, true
		holding := e.first == firstHeld
		e.mu.Unlock()
		if !holding { // else Open does it
			e.finish(err, true)
		}
		return
	}
	e.shut(err, true)
}

// Writable implements tunnel.Receiver.
func (e *End) Writable() { e.signal() }

// Abort closes the socket from here, as when the process stops.
func (e *End) Abort(reason string) {
	if st := e.stream(); st != nil {
		st.Reset(reason, false)
	}
	e.shut(errGone, true)
}

func (e *End) written(n int) {
	e.mu.Lock()
	e.wrote += int64(n)
	st := e.st
	e.mu.Unlock()
	if st != nil {
		st.Consumed(n)
	}
}

// writeFailed handles a socket that takes no more bytes. When its other end has closed
// it, what that wrote before arrives first, and the end of reading ends the connection.
func (e *End) writeFailed(err error) {
	closed := errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) && e.in.HungUp()
	e.mu.Lock()
	st, readEnd := e.st, e.socket == socketEnded
	wanted := closed && st != nil && !e.closed && !e.peerClosed
	if wanted && !readEnd {
		e.socket = socketClosed
	}
	e.mu.Unlock()
	switch {
	case wanted && readEnd:
		st.Close()
		e.shut(err, false)
	case wanted:
		e.settle()
	default:
		if st != nil {
			st.Reset(err.Error(), readEnd) // behind what was read up to its end
		}
		e.shut(err, false)
	}
}
