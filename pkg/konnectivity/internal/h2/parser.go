// SPDX-License-Identifier: Apache-2.0

package h2

import "encoding/binary"

// parser splits a stream of bytes into frames. The payload of DATA is handed on
// as it arrives; other frames are collected, which the frame size bounds.
type parser struct {
	preface int // bytes of the client preface still expected
	hdr     [headerLen]byte
	nhdr    int
	body    []byte
	need    int // payload bytes still to come
	pad     int // padding bytes at the end of a DATA frame
	inData  bool
	padLen  bool // the next payload byte is the length of the padding
	hblock  *headerBlock

	typ, flags byte
	stream     uint32
}

type frameSink interface {
	dataStart(stream uint32, length int) error
	data(stream uint32, p []byte) error
	padding(stream uint32, n int)
	dataEnd(stream uint32, end bool) error
	frame(typ, flags byte, stream uint32, payload []byte) error
}

func (ps *parser) feed(p []byte, sink frameSink) error {
	for len(p) > 0 {
		var n int
		var err error
		switch {
		case ps.preface > 0:
			n, err = ps.readPreface(p)
		case ps.nhdr < headerLen:
			n, err = ps.readHeader(p, sink)
		case ps.inData:
			n, err = ps.readData(p, sink)
		default:
			n, err = ps.readBody(p, sink)
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func (ps *parser) readPreface(p []byte) (int, error) {
	n := min(ps.preface, len(p))
	at := len(preface) - ps.preface
	if string(p[:n]) != preface[at:at+n] {
		return 0, &ConnError{CodeProtocol, "not an HTTP/2 client"}
	}
	ps.preface -= n
	return n, nil
}

func (ps *parser) readHeader(p []byte, sink frameSink) (int, error) {
	n := copy(ps.hdr[ps.nhdr:], p)
	ps.nhdr += n
	if ps.nhdr < headerLen {
		return n, nil
	}
	ps.need = int(ps.hdr[0])<<16 | int(ps.hdr[1])<<8 | int(ps.hdr[2])
	ps.typ, ps.flags = ps.hdr[3], ps.hdr[4]
	ps.stream = binary.BigEndian.Uint32(ps.hdr[5:]) & (1<<31 - 1)
	if ps.need > maxFrame {
		return 0, &ConnError{CodeFrameSize, "frame is larger than 16384 bytes"}
	}
	ps.body, ps.inData, ps.pad = ps.body[:0], ps.typ == frameData, 0
	if !ps.inData {
		if ps.need == 0 {
			return n, ps.finish(sink, nil)
		}
		return n, nil
	}
	ps.padLen = ps.flags&flagPadded != 0
	if ps.stream == 0 || (ps.padLen && ps.need == 0) {
		return 0, &ConnError{CodeProtocol, "bad DATA frame"}
	}
	if err := sink.dataStart(ps.stream, ps.need); err != nil {
		return 0, err
	}
	if ps.need == 0 {
		return n, ps.finishData(sink)
	}
	return n, nil
}

func (ps *parser) readData(p []byte, sink frameSink) (int, error) {
	if ps.padLen {
		ps.padLen = false
		ps.pad = int(p[0])
		ps.need--
		if ps.pad > ps.need {
			return 0, &ConnError{CodeProtocol, "padding is longer than the frame"}
		}
		sink.padding(ps.stream, 1+ps.pad)
		if ps.need == 0 {
			return 1, ps.finishData(sink)
		}
		return 1, nil
	}
	n := min(ps.need, len(p))
	if body := min(n, ps.need-ps.pad); body > 0 {
		if err := sink.data(ps.stream, p[:body]); err != nil {
			return 0, err
		}
	}
	ps.need -= n
	if ps.need < ps.pad {
		ps.pad = ps.need
	}
	if ps.need == 0 {
		return n, ps.finishData(sink)
	}
	return n, nil
}

func (ps *parser) readBody(p []byte, sink frameSink) (int, error) {
	if len(ps.body) == 0 && len(p) >= ps.need {
		n := ps.need
		return n, ps.finish(sink, p[:n])
	}
	n := min(ps.need, len(p))
	ps.body = append(ps.body, p[:n]...)
	ps.need -= n
	if ps.need == 0 {
		err := ps.finish(sink, ps.body)
		ps.body = nil
		return n, err
	}
	return n, nil
}

func (ps *parser) finish(sink frameSink, payload []byte) error {
	ps.nhdr = 0
	return sink.frame(ps.typ, ps.flags, ps.stream, payload)
}

func (ps *parser) finishData(sink frameSink) error {
	ps.nhdr, ps.inData = 0, false
	return sink.dataEnd(ps.stream, ps.flags&flagEndStream != 0)
}
