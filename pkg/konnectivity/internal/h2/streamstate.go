// SPDX-License-Identifier: Apache-2.0

package h2

// sendState is how far this side's direction of a stream has got.
type sendState byte

const (
	sendOpen     sendState = iota
	sendTrailing           // the trailer is sent after the queue
	sendEnded              // END_STREAM or RST_STREAM was sent
)

// recvState is how far the peer's direction of a stream has got.
type recvState byte

const (
	recvOpen      recvState = iota
	recvEnded               // the peer sends no more
	recvDelivered           // the handler knows
	recvClosed              // the handler knows that the stream is over, or is about to
)

// sendList is the list of the connection on which a stream waits to send. wantLocked and
// starveLocked put a stream that is on none on one of them, takeLocked and unlistLocked take
// it off. A stream is on one list at most.
type sendList byte

const (
	listNone    sendList = iota
	listPump             // Conn.pump: it has something to send
	listStarved          // Conn.starved: it only waits for the connection's window
)

// answer is what Conn.resets, which bounds the streams that clients waste, has to do with a
// stream. A stream becomes wasted once, and only before its answer. An answer that is sent
// nevertheless counts as one.
type answer byte

const (
	answerDue    answer = iota
	answerWasted        // the stream was counted as wasted
	answerSent          // data was sent
)
