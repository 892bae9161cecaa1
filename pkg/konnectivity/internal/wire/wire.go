// SPDX-License-Identifier: Apache-2.0

// Package wire is a codec for the packets of upstream's tunnel protocol
// (sigs.k8s.io/apiserver-network-proxy, konnectivity-client/proto/client). It
// reads and writes the protobuf encoding by hand: decoding does not copy the
// payload, and encoding writes only the few bytes in front of it.
//
// The generated code is the oracle of the tests.
package wire

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// Type is the kind of a packet.
type Type int32

// The packet types of upstream's protocol.
const (
	DialReq Type = iota
	DialRsp
	CloseReq
	CloseRsp
	Data
	DialCls
	Drain
)

var typeNames = [...]string{"DIAL_REQ", "DIAL_RSP", "CLOSE_REQ", "CLOSE_RSP", "DATA", "DIAL_CLS", "DRAIN"}

// String returns the protobuf name, or the number of an unknown type.
func (t Type) String() string {
	if t >= 0 && int(t) < len(typeNames) {
		return typeNames[t]
	}
	return fmt.Sprint(int32(t))
}

// Packet is any of the packets; which fields mean something depends on Payload.
type Packet struct {
	Type Type
	// Payload is the packet type whose message was present, or -1.
	Payload  Type
	Protocol string
	Address  string
	Random   int64
	ConnID   int64
	Error    string
	// Data is a part of the bytes that were decoded, not a copy.
	Data []byte
}

// Errors of malformed input.
var (
	ErrTruncated = errors.New("packet is truncated")
	ErrMalformed = errors.New("packet is malformed")
	ErrUTF8      = errors.New("packet has a string that is not UTF-8")
)

// oneofField maps packet types to the numbers of their fields in the oneof.
var oneofField = [...]byte{DialReq: 2, DialRsp: 3, CloseReq: 5, CloseRsp: 6, Data: 4, DialCls: 7, Drain: 8}

func payloadOf(field uint64) Type {
	for t, f := range oneofField {
		if uint64(f) == field {
			return Type(t)
		}
	}
	return -1
}

// Decode reads one packet. Unknown fields are skipped; a message that occurs
// more than once is merged, as protobuf demands.
func Decode(b []byte) (Packet, error) {
	p := Packet{Payload: -1}
	for len(b) > 0 {
		field, wt, n, err := tag(b)
		if err != nil {
			return p, err
		}
		b = b[n:]
		t := payloadOf(field)
		switch {
		case field == 1 && wt == wireVarint:
			v, n, err := varint(b)
			if err != nil {
				return p, err
			}
			p.Type, b = Type(int32(v)), b[n:]
		case t >= 0 && wt == wireBytes:
			msg, n, err := lenBytes(b)
			if err != nil {
				return p, err
			}
			b = b[n:]
			if t != p.Payload {
				p = Packet{Type: p.Type, Payload: t}
			}
			if err := p.decodePayload(msg); err != nil {
				return p, err
			}
		default:
			n, err := skip(b, field, wt, 0)
			if err != nil {
				return p, err
			}
			b = b[n:]
		}
	}
	return p, nil
}

// slot says which field of Packet a field of a payload message is.
type slot byte

const (
	slotNone slot = iota
	slotProtocol
	slotAddress
	slotRandom
	slotConnID
	slotError
	slotData
)

// layout is, per packet type, what the fields 1 to 3 of its message are.
var layout = [...][4]slot{
	DialReq:  {1: slotProtocol, 2: slotAddress, 3: slotRandom},
	DialRsp:  {1: slotError, 2: slotConnID, 3: slotRandom},
	CloseReq: {1: slotConnID},
	CloseRsp: {1: slotError, 2: slotConnID},
	Data:     {1: slotConnID, 2: slotError, 3: slotData},
	DialCls:  {1: slotRandom},
	Drain:    {},
}

func (p *Packet) decodePayload(b []byte) error {
	for len(b) > 0 {
		field, wt, n, err := tag(b)
		if err != nil {
			return err
		}
		b = b[n:]
		s := slotNone
		if field < 4 {
			s = layout[p.Payload][field]
		}
		n, err = p.decodeField(s, field, wt, b)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (p *Packet) decodeField(s slot, field uint64, wt byte, b []byte) (int, error) {
	number := s == slotRandom || s == slotConnID
	switch {
	case number && wt == wireVarint:
		v, n, err := varint(b)
		if s == slotRandom {
			p.Random = int64(v)
		} else {
			p.ConnID = int64(v)
		}
		return n, err
	case s != slotNone && !number && wt == wireBytes:
		v, n, err := lenBytes(b)
		if err != nil {
			return 0, err
		}
		return n, p.setBytes(s, v)
	default:
		return skip(b, field, wt, 0)
	}
}

func (p *Packet) setBytes(s slot, v []byte) error {
	if s == slotData {
		p.Data = v
		return nil
	}
	if !utf8.Valid(v) {
		return ErrUTF8
	}
	switch s {
	case slotProtocol:
		p.Protocol = string(v)
	case slotAddress:
		p.Address = string(v)
	case slotError:
		p.Error = string(v)
	}
	return nil
}
