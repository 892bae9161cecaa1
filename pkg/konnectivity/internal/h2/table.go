// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"sync"

	"golang.org/x/net/http2/hpack"
)

// initialTable is the size of the table of header fields before any SETTINGS, in
// bytes.
const initialTable = 4096

// headerTable decodes header blocks. Most connections carry one request. For one
// request a dynamic table saves nothing, but takes as much memory as the rest of an
// idle connection on the heap, so the connection asks its peer to do without one.
// Connections whose peers have accepted that share decoders, which keep no state
// between blocks.
type headerTable struct {
	dec  *hpack.Decoder // used until the peer does without a table; nil before the first block
	none bool           // the peer has acknowledged the SETTINGS of this side
}

// decoders are the idle decoders without a table.
var decoders = sync.Pool{New: func() any { return newDecoder(0) }}

func newDecoder(table uint32) *hpack.Decoder {
	d := hpack.NewDecoder(table, nil)
	d.SetMaxStringLength(maxHeaderBlock)
	return d
}

// acknowledged is called when the peer has acknowledged the SETTINGS of this side. A
// peer that has used its table announces in the next block that the table is empty.
func (t *headerTable) acknowledged() { t.dec, t.none = nil, true }

func (t *headerTable) decode(block []byte) ([]Field, error) {
	if t.none {
		dec := decoders.Get().(*hpack.Decoder)
		fields, err := decode(dec, block)
		if err == nil { // after an error it may hold a part of the block
			decoders.Put(dec)
		}
		return fields, err
	}
	if t.dec == nil {
		t.dec = newDecoder(initialTable)
	}
	return decode(t.dec, block)
}

func decode(dec *hpack.Decoder, block []byte) ([]Field, error) {
	fields, total := make([]Field, 0, 12), 0
	dec.SetEmitFunc(func(f hpack.HeaderField) {
		total += len(f.Name) + len(f.Value) + 32
		if total <= maxHeaderBlock {
			fields = append(fields, Field{f.Name, f.Value})
		}
	})
	defer dec.SetEmitFunc(func(hpack.HeaderField) {}) // the emit function above would keep the fields in memory
	_, err := dec.Write(block)
	if err == nil {
		err = dec.Close()
	}
	if err != nil {
		return nil, &ConnError{CodeCompression, "header block cannot be decoded"}
	}
	if total > maxHeaderBlock {
		return nil, &ConnError{CodeEnhanceCalm, "header list is larger than 64 KiB"}
	}
	return fields, nil
}
