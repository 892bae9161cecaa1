// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Frame types and flags of RFC 9113 section 6.
const (
	frameData         = 0x0
	frameHeaders      = 0x1
	framePriority     = 0x2
	frameRST          = 0x3
	frameSettings     = 0x4
	framePushPromise  = 0x5
	framePing         = 0x6
	frameGoAway       = 0x7
	frameWindowUpdate = 0x8
	frameContinuation = 0x9

	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

// Error codes of RFC 9113 section 7 that are sent here.
const (
	CodeNo            = 0x0
	CodeProtocol      = 0x1
	CodeFlowControl   = 0x3
	CodeStreamClosed  = 0x5
	CodeFrameSize     = 0x6
	CodeRefused       = 0x7
	CodeCancel        = 0x8
	CodeCompression   = 0x9
	CodeEnhanceCalm   = 0xb
	settingTable      = 0x1
	settingMaxStreams = 0x3
	settingWindow     = 0x4
	settingMaxFrame   = 0x5
)

const (
	headerLen = 9
	// maxFrame is the frame size that is accepted and sent, the initial value
	// of SETTINGS_MAX_FRAME_SIZE; gRPC never asks for more.
	maxFrame = 16384
	// initialWindow is the flow-control window before any SETTINGS, in bytes.
	initialWindow = 65535
	// maxWindow is the greatest window that RFC 9113 allows, in bytes.
	maxWindow = 1<<31 - 1
	// maxHeaderBlock bounds the header block of one stream in bytes; tokens
	// are a few KiB.
	maxHeaderBlock = 64 << 10
	// preface starts every client connection.
	preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
)

// ConnError ends the whole connection.
type ConnError struct {
	Code   uint32
	Reason string
}

func (e *ConnError) Error() string {
	return fmt.Sprintf("HTTP/2 connection error %d: %s", e.Code, e.Reason)
}

// ErrGoAway reports that the peer ends the connection in an orderly way.
var ErrGoAway = errors.New("peer sent GOAWAY")

// Field is one header field.
type Field struct{ Name, Value string }

func appendFrameHeader(b []byte, length int, typ, flags byte, stream uint32) []byte {
	b = append(b, byte(length>>16), byte(length>>8), byte(length), typ, flags)
	return binary.BigEndian.AppendUint32(b, stream)
}

// appendSettings writes our SETTINGS. The table of header fields is not wanted: see
// headerTable.
func appendSettings(b []byte, window, streams uint32) []byte {
	b = appendFrameHeader(b, 18, frameSettings, 0, 0)
	b = binary.BigEndian.AppendUint16(b, settingTable)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint16(b, settingWindow)
	b = binary.BigEndian.AppendUint32(b, window)
	b = binary.BigEndian.AppendUint16(b, settingMaxStreams)
	return binary.BigEndian.AppendUint32(b, streams)
}

func appendWindowUpdate(b []byte, stream, n uint32) []byte {
	b = appendFrameHeader(b, 4, frameWindowUpdate, 0, stream)
	return binary.BigEndian.AppendUint32(b, n)
}

func appendRST(b []byte, stream, code uint32) []byte {
	b = appendFrameHeader(b, 4, frameRST, 0, stream)
	return binary.BigEndian.AppendUint32(b, code)
}

func appendGoAway(b []byte, last, code uint32, debug string) []byte {
	b = appendFrameHeader(b, 8+len(debug), frameGoAway, 0, 0)
	b = binary.BigEndian.AppendUint32(b, last)
	b = binary.BigEndian.AppendUint32(b, code)
	return append(b, debug...)
}

// appendHeaders writes a header block that uses no table, so that encoding needs
// no state.
func appendHeaders(b []byte, stream uint32, fields []Field, end bool) []byte {
	var block []byte
	for _, f := range fields {
		block = append(block, 0)
		block = hpackString(block, f.Name)
		block = hpackString(block, f.Value)
	}
	flags, typ := byte(0), byte(frameHeaders)
	if end {
		flags = flagEndStream
	}
	for {
		part := block[:min(len(block), maxFrame)]
		block = block[len(part):]
		if len(block) == 0 {
			flags |= flagEndHeaders
		}
		b = append(appendFrameHeader(b, len(part), typ, flags, stream), part...)
		if len(block) == 0 {
			return b
		}
		flags, typ = 0, frameContinuation
	}
}

func hpackString(b []byte, s string) []byte {
	if n := len(s); n < 127 {
		b = append(b, byte(n))
	} else {
		b = binary.AppendUvarint(append(b, 127), uint64(n-127))
	}
	return append(b, s...)
}
