// SPDX-License-Identifier: Apache-2.0

package link

// streamState is how far both directions of a stream have got. The names are those of
// RFC 9113, section 5.1, where it has them.
//
//	state            | dial is answered | own FIN or CLOSE is sent | FIN comes        | CLOSE comes
//	open             | link!            | halfClosedLocal          | halfClosedRemote | peerClosed
//	dialing          | open             | dialingEnded             | closed!          | closed!
//	dialingEnded     | halfClosedLocal  | -                        | closed!          | closed!
//	halfClosedLocal  | link!            | -                        | closed           | closed
//	peerClosed       | link!            | closed                   | -!               | -!
//	halfClosedRemote | link!            | closed                   | -!               | peerClosed
//
// An exclamation mark is a violation by the peer, for which this side resets the stream
// (closed!), ends the link (link!), or only reports it (-!). A dial that fails, a RESET of
// either side, and the end of the link close the stream in each state. A closed stream stays
// closed, and is not in Link.streams.
type streamState byte

const (
	stateOpen             streamState = iota
	stateDialing                      // the dial has no answer yet
	stateDialingEnded                 // likewise, but this side has sent its end, which no frontend does
	stateHalfClosedLocal              // this side has sent its end; CLOSE may still follow FIN
	stateHalfClosedRemote             // the peer has sent FIN: it sends no more, and reads on
	statePeerClosed                   // the peer has sent CLOSE: it neither sends nor reads
	stateClosed                       // nothing more is sent or received
)

// dialing reports whether the dial has no answer yet.
func (s streamState) dialing() bool { return s == stateDialing || s == stateDialingEnded }

// localEnded reports whether this side has sent its last byte and said so.
func (s streamState) localEnded() bool {
	return s == stateHalfClosedLocal || s == stateDialingEnded || s == stateClosed
}

// remoteEnded reports whether the peer has sent its last byte.
func (s streamState) remoteEnded() bool {
	return s == stateHalfClosedRemote || s == statePeerClosed || s == stateClosed
}

// answeredLocked notes that the dial was accepted.
func (st *Stream) answeredLocked() {
	switch st.state {
	case stateDialing:
		st.state = stateOpen
	case stateDialingEnded:
		st.state = stateHalfClosedLocal
	}
}

// localEndedLocked notes that this side's end is sent. It removes the stream if both
// directions have ended.
func (st *Stream) localEndedLocked() {
	switch st.state {
	case stateOpen:
		st.state = stateHalfClosedLocal
	case stateDialing:
		st.state = stateDialingEnded
	default:
		st.killLocked()
	}
}

// remoteEndedLocked notes the end that the peer has sent. It removes the stream if both
// directions have ended.
func (st *Stream) remoteEndedLocked(closed bool) {
	switch {
	case st.state.localEnded():
		st.killLocked()
	case closed:
		st.state = statePeerClosed
	default:
		st.state = stateHalfClosedRemote
	}
}
