// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Append appends the encoding of p, in the order of field numbers as the
// generated code does. Payload decides which message is written; Type is taken
// from Payload.
func Append(b []byte, p *Packet) []byte {
	t := p.Payload
	size := 0
	for field, s := range layout[t] {
		size += p.fieldSize(byte(field), s)
	}
	b = appendHead(b, t, size)
	for field, s := range layout[t] {
		b = p.appendField(b, byte(field), s)
	}
	return b
}

// appendHead writes the type and the tag and length of the payload message.
func appendHead(b []byte, t Type, size int) []byte {
	b = appendInt(b, 1, int64(t))
	b = append(b, oneofField[t]<<3|wireBytes)
	return binary.AppendUvarint(b, uint64(size))
}

func (p *Packet) fieldSize(_ byte, s slot) int {
	switch s {
	case slotProtocol:
		return sizeString(p.Protocol)
	case slotAddress:
		return sizeString(p.Address)
	case slotError:
		return sizeString(p.Error)
	case slotRandom:
		return sizeInt(p.Random)
	case slotConnID:
		return sizeInt(p.ConnID)
	case slotData:
		if len(p.Data) == 0 {
			return 0
		}
		return 1 + sizeVarint(uint64(len(p.Data))) + len(p.Data)
	}
	return 0
}

func (p *Packet) appendField(b []byte, field byte, s slot) []byte {
	switch s {
	case slotProtocol:
		return appendString(b, field, p.Protocol)
	case slotAddress:
		return appendString(b, field, p.Address)
	case slotError:
		return appendString(b, field, p.Error)
	case slotRandom:
		return appendInt(b, field, p.Random)
	case slotConnID:
		return appendInt(b, field, p.ConnID)
	case slotData:
		if len(p.Data) == 0 {
			return b
		}
		b = binary.AppendUvarint(append(b, field<<3|wireBytes), uint64(len(p.Data)))
		return append(b, p.Data...)
	}
	return b
}

// MaxDataHead is the greatest length in bytes of what AppendDataHead appends.
const MaxDataHead = 5 + 2 + 1 + 10 + 1 + 10 + 1 + 10

// AppendDataHead appends everything of a gRPC message with a DATA packet that
// stands before its n bytes of data, n > 0.
func AppendDataHead(b []byte, connID int64, n int) []byte {
	body := sizeInt(connID) + 1 + sizeVarint(uint64(n)) + n
	msg := 3 + sizeVarint(uint64(body)) + body
	b = append(b, 0, byte(msg>>24), byte(msg>>16), byte(msg>>8), byte(msg))
	b = appendHead(b, Data, body)
	b = appendInt(b, 1, connID)
	return binary.AppendUvarint(append(b, 3<<3|wireBytes), uint64(n))
}

// AppendMessage appends p as a gRPC message, uncompressed.
func AppendMessage(b []byte, p *Packet) []byte {
	start := len(b)
	b = Append(append(b, 0, 0, 0, 0, 0), p)
	binary.BigEndian.PutUint32(b[start+1:], uint32(len(b)-start-5))
	return b
}
