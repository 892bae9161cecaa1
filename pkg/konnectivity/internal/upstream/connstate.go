// SPDX-License-Identifier: Apache-2.0

package upstream

// connState is how far a connection has got. The protocol has no half-close: a close ends
// both directions, that of the other side when it has arrived there. A pending dial is open,
// and in Session.dials.
//
//	state            next state                 when
//	open             closing                    CloseWrite, Close
//	closing          halfClosedLocal            the queue is empty: the close is sent
//	                 draining                   or, at a server, HTTP/2 has yet to send the last data
//	                 delayed                    or, at a server, it has just sent that
//	draining         delayed                    HTTP/2 has sent all data
//	delayed          halfClosedLocal            Config.HoldClose is over: the close is sent
//	open or closing  halfClosedLocal            CLOSE_REQ comes, at an agent, which answers it and goes on to closed
//	halfClosedLocal  closed                     CLOSE_RSP comes, at a server; lastWords is over, at an agent whose receiver still reads
//
// In each state, the other side's close, a reset, a dial that fails or is canceled, and the
// end of the session close the connection. It stays closed, and is not in Session.conns.
type connState byte

const (
	stateOpen            connState = iota // the order is that of the table
	stateClosing                          // the close waits for the queue
	stateDraining                         // the close waits for data that HTTP/2 has not sent yet
	stateDelayed                          // the close waits for the agent to pass the last data on
	stateHalfClosedLocal                  // the close was sent; the other side's data still comes
	stateClosed                           // nothing more is sent or received
)
