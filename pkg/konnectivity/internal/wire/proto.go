// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Protobuf wire types.
const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
	wireGroup  = 3
	wireEnd    = 4
	wire32     = 5
)

// maxField is the greatest field number that protobuf allows.
const maxField = 1<<29 - 1

// maxDepth bounds nested groups in unknown fields.
const maxDepth = 100

func varint(b []byte) (uint64, int, error) {
	v, n := binary.Uvarint(b)
	switch {
	case n > 0:
		return v, n, nil
	case n == 0:
		return 0, 0, ErrTruncated
	default:
		return 0, 0, ErrMalformed
	}
}

func tag(b []byte) (field uint64, wt byte, n int, err error) {
	v, n, err := varint(b)
	if err != nil {
		return 0, 0, 0, err
	}
	field, wt = v>>3, byte(v&7)
	if field == 0 || field > maxField {
		return 0, 0, 0, ErrMalformed
	}
	return field, wt, n, nil
}

func lenBytes(b []byte) ([]byte, int, error) {
	l, n, err := varint(b)
	if err != nil {
		return nil, 0, err
	}
	if l > uint64(len(b)-n) {
		return nil, 0, ErrTruncated
	}
	end := n + int(l)
	return b[n:end:end], end, nil
}

// skip returns the length of the value of an unknown field.
func skip(b []byte, field uint64, wt byte, depth int) (int, error) {
	switch wt {
	case wireVarint:
		_, n, err := varint(b)
		return n, err
	case wire64, wire32:
		n := 8
		if wt == wire32 {
			n = 4
		}
		if len(b) < n {
			return 0, ErrTruncated
		}
		return n, nil
	case wireBytes:
		_, n, err := lenBytes(b)
		return n, err
	case wireGroup:
		return skipGroup(b, field, depth+1)
	default:
		return 0, ErrMalformed
	}
}

func skipGroup(b []byte, group uint64, depth int) (int, error) {
	if depth > maxDepth {
		return 0, ErrMalformed
	}
	total := 0
	for {
		field, wt, n, err := tag(b[total:])
		if err != nil {
			return 0, err
		}
		total += n
		if wt == wireEnd {
			if field != group {
				return 0, ErrMalformed
			}
			return total, nil
		}
		n, err = skip(b[total:], field, wt, depth)
		if err != nil {
			return 0, err
		}
		total += n
	}
}

func appendInt(b []byte, field byte, v int64) []byte {
	if v == 0 {
		return b
	}
	return binary.AppendUvarint(append(b, field<<3|wireVarint), uint64(v))
}

func appendString(b []byte, field byte, s string) []byte {
	if s == "" {
		return b
	}
	b = binary.AppendUvarint(append(b, field<<3|wireBytes), uint64(len(s)))
	return append(b, s...)
}

func sizeInt(v int64) int {
	if v == 0 {
		return 0
	}
	return 1 + sizeVarint(uint64(v))
}

func sizeString(s string) int {
	if s == "" {
		return 0
	}
	return 1 + sizeVarint(uint64(len(s))) + len(s)
}

func sizeVarint(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}
