// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
)

// ALPN is the name under which the protocol is negotiated in the TLS handshake.
const ALPN = "fairlead-link/1"

// Frame types. Unknown types are skipped.
const (
	typeHello    = 1  // agent to server: who it is
	typeWelcome  = 2  // server to agent: accepted
	typeRefuse   = 3  // server to agent: not accepted, with the reason
	typeDial     = 4  // server to agent: connect to this address
	typeDialed   = 5  // agent to server: connected
	typeDialFail = 6  // agent to server: code and reason
	typeData     = 7  // bytes of a stream
	typeFin      = 8  // no more bytes in this direction
	typeClose    = 9  // the same, and nothing will be read
	typeReset    = 10 // the stream is over in both directions
	typeCredit   = 11 // that many more bytes may be sent on a stream
	typePing     = 12 // eight bytes, answered by
	typePong     = 13 // the same eight bytes
	typeDrain    = 14 // dial no more here
	typeDrained  = 15 // answer: no dial follows this frame
	typeBlocked  = 16 // the sender of a stream has used up its credit
)

const (
	headerLen = 8
	// maxData is the greatest payload of DATA in bytes.
	maxData = buffer.MaxPayload
	// maxControl is the greatest payload of any other frame in bytes; the
	// token in HELLO is the largest.
	maxControl = 64 << 10
)

func putHeader(b []byte, typ byte, length int, stream uint32) {
	b[0], b[1], b[2], b[3] = typ, byte(length>>16), byte(length>>8), byte(length)
	binary.BigEndian.PutUint32(b[4:], stream)
}

func appendFrame(b []byte, typ byte, stream uint32, payload string) []byte {
	var h [headerLen]byte
	putHeader(h[:], typ, len(payload), stream)
	return append(append(b, h[:]...), payload...)
}

func appendCredit(b []byte, stream uint32, n int) []byte {
	var h [headerLen]byte
	putHeader(h[:], typeCredit, 4, stream)
	return binary.BigEndian.AppendUint32(append(b, h[:]...), uint32(n))
}

// ProtocolError is a violation that ends the link.
type ProtocolError struct{ Reason string }

func (e *ProtocolError) Error() string { return "link protocol: " + e.Reason }

func violation(format string, args ...any) error {
	return &ProtocolError{fmt.Sprintf(format, args...)}
}

// Hello is what an agent says about itself.
type Hello struct {
	AgentID     string
	Identifiers string // URL query as in upstream's protocol
	Token       string // bearer token, may be empty
	Window      int    // bytes the server may send per stream before credit
	// Have lists, with commas, the servers that the agent is connected to and
	// does not want a second time.
	Have string
	// Only, if set, are the IDs, comma-separated, of the servers that this link is meant for.
	Only string
	// Traces says that the agent takes a trace context behind the address in DIAL.
	Traces bool
	// Version is the version of the agent's program; it may be empty.
	Version string
}

// AddTrace returns the payload of DIAL with a trace context. Only an agent that has announced Traces understands it.
func AddTrace(address, traceparent string) string { return address + "\x00" + traceparent }

// CutTrace returns the address and the trace context of the payload of DIAL.
func CutTrace(payload string) (address, traceparent string) {
	address, traceparent, _ = strings.Cut(payload, "\x00")
	return address, traceparent
}

// ReasonDuplicate is the reason in REFUSE when the server is in Have, or is not
// among those in Only.
const ReasonDuplicate = "duplicate"

// Welcome is the server's answer to a Hello.
type Welcome struct {
	ServerID    string
	ServerCount int
	Window      int // bytes the agent may send per stream before credit
	Links       int // how many links the agent should hold to this server
}

var errBadFields = errors.New("malformed key and value list")

// appendFields encodes pairs: length of key (1 byte), key, length of value (2
// bytes), value.
func appendFields(pairs ...string) (b []byte) {
	for i := 0; i < len(pairs); i += 2 {
		b = append(append(b, byte(len(pairs[i]))), pairs[i]...)
		b = binary.BigEndian.AppendUint16(b, uint16(len(pairs[i+1])))
		b = append(b, pairs[i+1]...)
	}
	return b
}

func parseFields(b []byte) (map[string]string, error) {
	m := map[string]string{}
	for len(b) > 0 {
		k := int(b[0])
		if len(b) < 1+k+2 {
			return nil, errBadFields
		}
		key := string(b[1 : 1+k])
		v := int(binary.BigEndian.Uint16(b[1+k:]))
		b = b[1+k+2:]
		if len(b) < v {
			return nil, errBadFields
		}
		if _, dup := m[key]; dup {
			return nil, errBadFields
		}
		m[key] = string(b[:v])
		b = b[v:]
	}
	return m, nil
}
