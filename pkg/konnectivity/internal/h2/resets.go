// SPDX-License-Identifier: Apache-2.0

package h2

import "time"

const (
	// maxResets is the number of streams that a client may waste in one go, about as
	// many as other servers of HTTP/2 allow.
	maxResets = 200
	// resetRefill is the time after which a client may waste one more.
	resetRefill = 100 * time.Millisecond
	// patient is the age from which a stream that is reset is no waste: its client waited
	// for an answer and gave up, as it does with a dial that takes too long. MaxStreams
	// bounds how many of these there can be.
	patient = time.Second
)

// resetBudget bounds the streams that a client opens and wastes. The number of open
// streams does not bound them: a stream that is reset makes room for the next one.
type resetBudget struct {
	used int
	last time.Time // up to which used is reduced
}

// waste counts one, such as a stream that was reset before an answer to it was sent.
func (b *resetBudget) waste(now time.Time) {
	if n := now.Sub(b.last) / resetRefill; n > 0 {
		b.used, b.last = max(0, b.used-int(min(n, time.Duration(b.used)))), now
	}
	b.used++
}

// good gives one back for a stream that was answered.
func (b *resetBudget) good() { b.used = max(0, b.used-1) }

func (b *resetBudget) spent() bool { return b.used > maxResets }

// resetLocked counts a stream that ends with a reset because of the client: it asked
// for that, or broke a rule to get it. A client may reset what has ended on this side:
// grpc-go does, behind each call that the server ends first.
func (c *Conn) resetLocked(st *Stream) {
	if c.client || c.streams[st.id] != st || st.send == sendEnded && st.answer != answerSent {
		return
	}
	if st.answer == answerSent {
		c.resets.good()
		return
	}
	c.wasteLocked(st)
}

// wasteLocked counts a stream that its client ends without an answer to it, once: with a
// reset, with the end of the call, or by what the server answers with the end at once. All
// cost the server the same.
func (c *Conn) wasteLocked(st *Stream) {
	now := time.Now()
	if c.client || st.answer != answerDue || now.Sub(st.opened) >= patient {
		return
	}
	st.answer = answerWasted
	c.resets.waste(now)
}

// Waste counts a stream that the server is about to end because of what its client sent,
// unless data was sent to it: a client that makes such streams again and again is cut off.
func (st *Stream) Waste() {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	st.c.wasteLocked(st)
}
