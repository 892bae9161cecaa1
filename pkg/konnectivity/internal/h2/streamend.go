// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

// Drop removes a sender's messages from the queue, except for the rest of a
// packet that is partly sent: the messages of other senders follow it. The
// sender gets Sent for the removed bytes.
func (st *Stream) Drop(from Sender) {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := st.queue[:0]
	for i, m := range st.queue {
		switch {
		case m.from != from || m.chunk == nil:
			kept = append(kept, m)
		case i == 0 && m.started():
			m.from.Sent(m.chunk.Len() - m.left)
			m.chunk.Truncate(m.left)
			m.chunk = m.chunk.Shrink()
			kept = append(kept, m)
		default:
			m.from.Sent(m.chunk.Len())
			m.chunk.Release()
		}
	}
	clear(st.queue[len(kept):])
	st.queue = kept
}

// started reports whether a part of the current packet is sent.
func (m *message) started() bool {
	size := min(m.chunk.Len(), maxPacket) // of a packet that is not started
	return m.left < size || len(m.head) < len(wire.AppendDataHead(nil, m.connID, m.left))
}

// dropLocked releases the queue. The senders' bytes have left it.
func (st *Stream) dropLocked() {
	for _, m := range st.queue {
		if m.chunk != nil {
			n := m.chunk.Len()
			m.chunk.Release()
			m.from.Sent(n)
		}
		st.c.answers -= m.cost
	}
	st.queue = nil
}

func (st *Stream) peerEnded() {
	st.c.mu.Lock()
	if st.recv != recvOpen {
		st.c.mu.Unlock()
		return
	}
	st.recv = recvEnded
	if st.send == sendOpen {
		st.c.wasteLocked(st)
	}
	st.c.mu.Unlock()
	if st.h != nil {
		st.h.End()
	}
	st.c.mu.Lock()
	done := st.send == sendEnded && st.recv == recvEnded
	switch {
	case done:
		st.recv = recvClosed
		st.c.removeLocked(st)
	case st.recv == recvEnded:
		st.recv = recvDelivered
	}
	st.c.mu.Unlock()
	if done && st.h != nil {
		st.h.Closed(nil)
	}
}

// breach resets a stream on which the peer broke a rule.
func (st *Stream) breach(code uint32, rule string) {
	st.c.mu.Lock()
	st.c.resetLocked(st)
	st.c.mu.Unlock()
	st.Reset(code)
	st.kill(&StreamError{Code: code, Breach: rule})
}

// kill ends the stream because of the peer or the connection.
func (st *Stream) kill(err error) {
	st.c.mu.Lock()
	if st.recv == recvClosed {
		st.c.mu.Unlock()
		return
	}
	st.send, st.recv = sendEnded, recvClosed
	st.dropLocked()
	st.c.removeLocked(st)
	st.c.mu.Unlock()
	if st.h != nil {
		st.h.Closed(err)
	}
}
