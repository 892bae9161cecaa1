// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// MaxMessage is the greatest gRPC message in bytes that is accepted, the default
// of gRPC and so of every upstream peer.
const MaxMessage = 4 << 20

// ErrTooLarge reports a message above MaxMessage.
var ErrTooLarge = errors.New("message is larger than 4 MiB")

// ErrCompressed reports a compressed message, which no peer of the protocol sends.
var ErrCompressed = errors.New("message is compressed")

// Handler receives what a StreamDecoder reads.
type Handler interface {
	// HandlePacket gets every packet except plain DATA. The packet's Data is
	// valid during the call only.
	HandlePacket(p *Packet) error
	// HandleData gets the data of DATA packets in pieces as they arrive. A
	// piece is valid during the call only. An empty DATA packet gives no call.
	HandleData(connID int64, piece []byte) error
}

// StreamDecoder reads gRPC messages with packets from a stream of bytes that
// comes in pieces of any size. The data of a large message is handed on as it
// arrives, so that nothing has to be collected.
type StreamDecoder struct {
	head   [MaxDataHead]byte // prefix and start of a message
	nhead  int
	need   int    // bytes of the message that are still to come
	body   []byte // message being collected
	connID int64  // connection of the DATA packet being streamed
	mode   byte
	// Messages counts complete messages by type for the metrics of the owner.
	Messages [len(typeNames)]uint64
}

const (
	modeHead byte = iota
	modeData
	modeBody
)

// Idle reports whether the stream stands between two messages.
func (d *StreamDecoder) Idle() bool { return d.mode == modeHead && d.nhead == 0 }

// Feed reads the next piece of the stream.
func (d *StreamDecoder) Feed(p []byte, h Handler) error {
	for len(p) > 0 {
		n, err := d.step(p, h)
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func (d *StreamDecoder) step(p []byte, h Handler) (int, error) {
	switch d.mode {
	case modeData:
		n := min(d.need, len(p))
		d.need -= n
		if d.need == 0 {
			d.mode = modeHead
		}
		return n, h.HandleData(d.connID, p[:n])
	case modeBody:
		n := min(d.need, len(p))
		d.body = append(d.body, p[:n]...)
		d.need -= n
		if d.need > 0 {
			return n, nil
		}
		err := d.packet(d.body, h)
		d.mode, d.body = modeHead, nil
		return n, err
	default:
		return d.start(p, h)
	}
}

// start reads the prefix of a message and decides how to read the rest.
func (d *StreamDecoder) start(p []byte, h Handler) (int, error) {
	n := copy(d.head[d.nhead:], p)
	have := d.head[:d.nhead+n]
	if len(have) < 5 {
		d.nhead = len(have)
		return n, nil
	}
	if have[0] != 0 {
		return 0, ErrCompressed
	}
	size := int(binary.BigEndian.Uint32(have[1:]))
	if size > MaxMessage {
		return 0, fmt.Errorf("%w: %d bytes", ErrTooLarge, size)
	}
	have = have[:min(len(have), 5+size)]
	took := len(have) - d.nhead
	switch connID, data, at, res := dataHead(have[5:], size); {
	case res == headData:
		return d.startData(took-(len(have)-5-at), connID, data)
	case res == headShort && len(have) < 5+size && len(have) < len(d.head):
		d.nhead = len(have)
		return took, nil
	case len(have) == 5+size:
		d.nhead = 0
		return took, d.packet(have[5:], h)
	default:
		d.body = append(make([]byte, 0, min(size, 4096)), have[5:]...)
		d.need, d.nhead, d.mode = 5+size-len(have), 0, modeBody
		return took, nil
	}
}

// startData switches to handing on the data of a DATA packet. took is negative
// never: the head ends in p because it was incomplete before.
func (d *StreamDecoder) startData(took int, connID int64, data int) (int, error) {
	d.Messages[Data]++
	d.nhead, d.connID, d.need = 0, connID, data
	if data > 0 {
		d.mode = modeData
	}
	return took, nil
}

func (d *StreamDecoder) packet(b []byte, h Handler) error {
	p, err := Decode(b)
	if err != nil {
		return err
	}
	if p.Type >= 0 && int(p.Type) < len(d.Messages) {
		d.Messages[p.Type]++
	}
	if p.Type == Data && p.Payload == Data {
		if len(p.Data) == 0 {
			return nil
		}
		return h.HandleData(p.ConnID, p.Data)
	}
	return h.HandlePacket(&p)
}

const (
	headOther byte = iota
	headShort
	headData
)

// dataHead recognizes a DATA packet in the order in which every generated
// encoder writes it, with nothing behind the data. at is where the data starts.
func dataHead(b []byte, size int) (connID int64, data, at int, res byte) {
	c := cursor{b: b}
	if !c.expect(1<<3) || !c.expect(byte(Data)) || !c.expect(oneofField[Data]<<3|wireBytes) {
		if len(b) < 3 && len(b) < size {
			return 0, 0, 0, headShort
		}
		return 0, 0, 0, headOther
	}
	if !c.rest(size) || !c.expect(1<<3|wireVarint) {
		return 0, 0, 0, c.short(size)
	}
	id, ok := c.number()
	if !ok || !c.expect(3<<3|wireBytes) || !c.rest(size) || c.i == size {
		return 0, 0, 0, c.short(size)
	}
	return int64(id), size - c.i, c.i, headData
}

// cursor reads the head of a packet.
type cursor struct {
	b []byte
	i int
}

func (c *cursor) expect(want byte) bool {
	c.i++
	return c.i <= len(c.b) && c.b[c.i-1] == want
}

func (c *cursor) number() (uint64, bool) {
	v, n := binary.Uvarint(c.b[min(c.i, len(c.b)):])
	c.i += n
	return v, n > 0
}

// rest reads a length and tells whether it reaches just to the end of the packet
// of size bytes.
func (c *cursor) rest(size int) bool {
	n, ok := c.number()
	return ok && uint64(c.i)+n == uint64(size)
}

// short judges a head that did not match: with more bytes it might.
func (c *cursor) short(size int) byte {
	if len(c.b) < size && c.i >= len(c.b)-10 {
		return headShort
	}
	return headOther
}
